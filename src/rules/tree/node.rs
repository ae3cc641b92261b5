//! The tree: scalars, lists and tables with their places.
#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "no user sees them"
)]

use crate::rules::problem::{Problem, ProblemCode, Spot};

/// The most that a file may hold.
#[derive(Debug, Clone, Copy)]
pub struct TreeBounds {
    /// The values, those of aliases included.
    pub nodes: usize,
    /// The lists and tables that lie in one another.
    pub depth: usize,
}

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where it stands.
    pub spot: Spot,
    /// The value itself.
    pub value: NodeValue,
}

/// A value of one of three kinds.
#[derive(Debug, Clone)]
pub enum NodeValue {
    /// One without parts.
    Scalar(Scalar),
    /// Values in an order.
    List(Vec<Node>),
    /// Keys with values.
    Table(Vec<NodeEntry>),
}

/// A value without parts, as the text that stands in the file: `1.10` is not `1.1`.
#[derive(Debug, Clone)]
pub struct Scalar {
    /// As it stands there, without quotes.
    pub text: String,
    /// Whether it is a text by its notation; without quotes `true` is a truth value.
    pub quoted: bool,
}

/// A key of a table, and its value.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// The key, as a text.
    pub key: String,
    /// Whether the key is a text by its notation.
    pub key_quoted: bool,
    /// Where the key stands.
    pub key_spot: Spot,
    /// What belongs to it.
    pub value: Node,
}

impl Node {
    /// The entries of a table; none of anything else.
    #[must_use]
    pub fn entries(&self) -> &[NodeEntry] {
        match &self.value {
            NodeValue::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a table's key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(in crate::rules) fn entry(&self, key: &str) -> Option<&NodeEntry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub(in crate::rules) fn text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The items of a list, or the value itself, which stands for a list of one.
    pub(in crate::rules) fn items(&self) -> &[Self] {
        match &self.value {
            NodeValue::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// `true` and `false` without quotes, as YAML 1.2 spells them (its core schema, §10.3.2).
    pub(in crate::rules) fn truth(&self) -> Option<bool> {
        match self.bare_text()? {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }

    /// A text without quotes.
    pub(in crate::rules) fn bare_text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Scalar(scalar) if !scalar.quoted => Some(&scalar.text),
            _ => None,
        }
    }

    /// Digits; underscores may group them.
    pub(in crate::rules) fn number(&self) -> Option<u64> {
        let digits = self.text()?.replace('_', "");
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    }

    /// How many values it has, itself included.
    pub(super) fn count(&self) -> usize {
        1 + match &self.value {
            NodeValue::Scalar(_) => 0,
            NodeValue::List(items) => items.iter().map(Self::count).sum(),
            NodeValue::Table(entries) => entries.iter().map(|entry| 1 + entry.value.count()).sum(),
        }
    }

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

    /// Everything that is said, without places and in one order: alike for two that say the same.
    pub(in crate::rules) fn canonical(&self) -> String {
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
}

/// Counts the values of a file.
#[derive(Debug)]
pub(super) struct NodeBudget {
    bounds: TreeBounds,
    taken: usize,
}

impl NodeBudget {
    pub(super) const fn new(bounds: TreeBounds) -> Self {
        Self { bounds, taken: 0 }
    }

    pub(super) fn take(&mut self, count: usize, spot: &Spot) -> Result<(), Problem> {
        let TreeBounds { nodes, .. } = self.bounds;
        self.taken = self.taken.saturating_add(count);
        if self.taken > nodes {
            let message = format!(
                "more than {nodes} values, counting those that aliases repeat; split the file"
            );
            return Err(Problem::new(ProblemCode::R01, spot, message));
        }
        Ok(())
    }

    /// Whether something may lie in as many lists and tables.
    pub(super) fn check_depth(&self, depth: usize, spot: &Spot) -> Result<(), Problem> {
        let TreeBounds { depth: most, .. } = self.bounds;
        if depth > most {
            let message = format!("lists and tables are nested more than {most} deep");
            return Err(Problem::new(ProblemCode::R01, spot, message));
        }
        Ok(())
    }
}
