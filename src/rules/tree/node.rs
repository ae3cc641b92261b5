//! The tree: scalars, lists and tables with their places.

use crate::rules::problem::{Problem, ProblemCode, Spot};

/// The most values of one file, those of aliases included.
pub(super) const MAX_NODES: usize = 100_000;

/// The deepest nesting of lists and tables.
pub(super) const MAX_DEPTH: usize = 32;

/// A value and its place.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Node {
    pub(in crate::rules) spot: Spot,
    pub(in crate::rules) value: NodeValue,
}

/// A value of one of three kinds.
#[derive(Debug, Clone)]
pub(in crate::rules) enum NodeValue {
    Scalar(Scalar),
    List(Vec<Node>),
    Table(Vec<NodeEntry>),
}

/// A value without parts, as the text that stands in the file: `1.10` is not `1.1`.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Scalar {
    pub(in crate::rules) text: String,
    /// Whether it is a text by its notation; without quotes `true` is a truth value.
    pub(in crate::rules) quoted: bool,
}

/// A key of a table, and its value.
#[derive(Debug, Clone)]
pub(in crate::rules) struct NodeEntry {
    pub(in crate::rules) key: String,
    pub(in crate::rules) key_spot: Spot,
    pub(in crate::rules) value: Node,
}

impl Node {
    pub(in crate::rules) fn entries(&self) -> &[NodeEntry] {
        match &self.value {
            NodeValue::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a table's key.
    pub(in crate::rules) fn get(&self, key: &str) -> Option<&Self> {
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

    /// `true` and `false` without quotes.
    pub(in crate::rules) fn truth(&self) -> Option<bool> {
        match &self.value {
            NodeValue::Scalar(scalar) if !scalar.quoted => scalar.text.parse().ok(),
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
#[derive(Debug, Default)]
pub(super) struct NodeBudget(usize);

impl NodeBudget {
    pub(super) fn take(&mut self, count: usize, spot: &Spot) -> Result<(), Problem> {
        self.0 = self.0.saturating_add(count);
        if self.0 > MAX_NODES {
            let message = format!(
                "more than {MAX_NODES} values, counting those that aliases repeat; split the file"
            );
            return Err(Problem::new(ProblemCode::R01, spot, message));
        }
        Ok(())
    }
}

pub(super) fn too_deep(spot: &Spot) -> Problem {
    let message = format!("lists and tables are nested more than {MAX_DEPTH} deep");
    Problem::new(ProblemCode::R01, spot, message)
}
