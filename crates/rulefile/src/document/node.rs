//! The tree of a document: scalars, lists and tables with their places.
#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "documents of all formats consist of these values and no others"
)]

use std::collections::HashMap;

use crate::{
    problems::{Problem, ProblemCode, Report},
    source_text::Span,
};

/// The largest document that is read.
#[derive(Debug, Clone, Copy)]
pub struct DocumentLimits {
    /// The number of keys and values, with those that aliases repeat.
    pub nodes: usize,
    /// The number of lists and tables inside each other.
    pub depth: usize,
}

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// The place of the value.
    pub span: Span,
    /// The value.
    pub value: NodeValue,
}

/// A value of one of three kinds.
#[derive(Debug, Clone)]
pub enum NodeValue {
    /// A single value: a text, a number, a boolean, nothing.
    Scalar(Scalar),
    /// Values in an order.
    List(Vec<Node>),
    /// Keys with values, in the order of the file. A key may occur twice: see [`report_duplicates`].
    Table(Vec<NodeEntry>),
}

/// A single value as the text that the file has: `1.10` is not `1.1`.
#[derive(Debug, Clone)]
pub struct Scalar {
    /// The text, without quotes.
    pub text: String,
    /// Whether the notation makes it a text. Without quotes `true` is a boolean.
    pub quoted: bool,
}

/// A key of a table, and its value.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// The key as a text.
    pub key: String,
    /// Whether the notation makes the key a text.
    pub key_quoted: bool,
    /// The place of the key.
    pub key_span: Span,
    /// The value of the key.
    pub value: Node,
}

impl Node {
    /// The entries of a table; none of a scalar or a list.
    pub fn entries(&self) -> &[NodeEntry] {
        match &self.value {
            NodeValue::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key of a table.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entry of a key of a table.
    pub fn entry(&self, key: &str) -> Option<&NodeEntry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The text of a scalar without quotes.
    pub fn unquoted_text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Scalar(scalar) if !scalar.quoted => Some(&scalar.text),
            _ => None,
        }
    }

    /// The items of a list. Any other value counts as a list of one.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            NodeValue::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// `true` or `false` without quotes, as YAML 1.2 spells them (its core schema, §10.3.2).
    pub fn boolean(&self) -> Option<bool> {
        match self.unquoted_text()? {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }

    /// A whole number: decimal digits, which underscores may group.
    pub fn number(&self) -> Option<u64> {
        let digits = self.text()?.replace('_', "");
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_plain)
    }

    /// A number from 0 on with at most three decimals, in thousandths: 2.5 is 2500.
    pub fn thousandths(&self) -> Option<u64> {
        let text = self.text()?;
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_plain =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain(whole) || !is_plain(decimals) {
            return None;
        }
        let decimals = decimals.trim_end_matches('0');
        let thousandths = format!("{decimals:0<3}");
        let part: u64 = thousandths.parse().ok().filter(|_| decimals.len() <= 3)?;
        whole
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000)?
            .checked_add(part)
    }

    /// The content without places and with sorted keys: equal for two values that mean the same.
    pub fn canonical(&self) -> String {
        match &self.value {
            NodeValue::Scalar(scalar) => format!("{:?}", scalar.text),
            NodeValue::List(items) => {
                let items: Vec<String> = items.iter().map(Self::canonical).collect();
                format!("[{}]", items.join(","))
            }
            NodeValue::Table(entries) => {
                let pair =
                    |entry: &NodeEntry| format!("{:?}:{}", entry.key, entry.value.canonical());
                let mut pairs: Vec<String> = entries.iter().map(pair).collect();
                pairs.sort();
                format!("{{{}}}", pairs.join(","))
            }
        }
    }

    /// The number of keys and values, this value included.
    pub(super) fn count(&self) -> usize {
        1 + match &self.value {
            NodeValue::Scalar(_) => 0,
            NodeValue::List(items) => items.iter().map(Self::count).sum(),
            NodeValue::Table(entries) => entries.iter().map(|entry| 1 + entry.value.count()).sum(),
        }
    }

    /// The number of lists and tables inside each other, plus one for a scalar in the innermost.
    pub(super) fn depth(&self) -> usize {
        1 + match &self.value {
            NodeValue::Scalar(_) => 0,
            NodeValue::List(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            NodeValue::Table(entries) => {
                let depths = entries.iter().map(|entry| entry.value.depth());
                depths.max().unwrap_or(0)
            }
        }
    }
}

/// Reports each key that a table has twice.
pub fn report_duplicates(entries: &[NodeEntry], report: &mut Report) {
    let mut first: HashMap<&str, &NodeEntry> = HashMap::new();
    for entry in entries {
        if report.is_full() {
            return;
        }
        if let Some(known) = first.insert(&entry.key, entry) {
            let message = format!("{:?} is taken: {}", entry.key, known.key_span.short());
            report.push(ProblemCode::R03, &entry.key_span, message);
        }
    }
}

/// Counts the keys and values of a document, and refuses more than its limits.
#[derive(Debug)]
pub(super) struct NodeCount {
    limits: DocumentLimits,
    nodes: usize,
}

impl NodeCount {
    pub(super) const fn new(limits: DocumentLimits) -> Self {
        Self { limits, nodes: 0 }
    }

    /// Counts further keys and values.
    pub(super) fn add(&mut self, count: usize, span: &Span) -> Result<(), Problem> {
        let DocumentLimits { nodes: most, .. } = self.limits;
        self.nodes = self.nodes.saturating_add(count);
        if self.nodes > most {
            let message = format!(
                "more than {most} values, counting those that aliases repeat; split the file"
            );
            return Err(Problem::new(ProblemCode::R01, span, message));
        }
        Ok(())
    }

    /// Refuses a value inside of too many lists and tables.
    pub(super) fn check_depth(&self, depth: usize, span: &Span) -> Result<(), Problem> {
        let DocumentLimits { depth: most, .. } = self.limits;
        if depth > most {
            let message = format!("lists and tables are nested more than {most} deep");
            return Err(Problem::new(ProblemCode::R01, span, message));
        }
        Ok(())
    }
}
