//! TOML as a tree.

use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::node::{Node, NodeBudget, NodeEntry, NodeValue, Scalar, TreeBounds};
use crate::rules::problem::{Problem, ProblemCode, SourceText, Spot};

/// The tree, unless the syntax is wrong, and all that is wrong with it.
pub(super) fn read(source: &Arc<SourceText>, bounds: TreeBounds) -> (Option<Node>, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let problems: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or(0..0);
            let spot = Spot::new(source, span.start, span.end);
            let message = error.message().trim().replace('\n', ", ");
            Problem::new(ProblemCode::R01, &spot, message)
        })
        .collect();
    if !problems.is_empty() {
        return (None, problems);
    }
    let mut reader = TreeReader {
        source,
        budget: NodeBudget::new(bounds),
    };
    let root = Spot::new(source, 0, 0);
    match reader.table(table.get_ref(), root, 0) {
        Ok(node) => (Some(node), problems),
        Err(problem) => (None, vec![problem]),
    }
}

struct TreeReader<'s> {
    source: &'s Arc<SourceText>,
    budget: NodeBudget,
}

impl TreeReader<'_> {
    fn spot(&self, span: std::ops::Range<usize>) -> Spot {
        Spot::new(self.source, span.start, span.end)
    }

    fn table(&mut self, table: &DeTable<'_>, spot: Spot, depth: usize) -> Result<Node, Problem> {
        self.budget.check_depth(depth + 1, &spot)?;
        self.budget.take(1, &spot)?;
        let mut entries = Vec::new();
        for (key, value) in table {
            let key_spot = self.spot(key.span());
            self.budget.take(1, &key_spot)?;
            let spot = self.spot(value.span());
            entries.push(NodeEntry {
                key: key.get_ref().to_string(),
                key_quoted: true,
                key_spot,
                value: self.value(value.get_ref(), spot, depth + 1)?,
            });
        }
        // The parser sorts by key; files are told about in their own order.
        entries.sort_by_key(|entry| entry.key_spot.start);
        Ok(Node {
            spot,
            value: NodeValue::Table(entries),
        })
    }

    fn value(&mut self, value: &DeValue<'_>, spot: Spot, depth: usize) -> Result<Node, Problem> {
        let (text, quoted) = match value {
            DeValue::Table(table) => return self.table(table, spot, depth),
            DeValue::Array(items) => {
                self.budget.check_depth(depth + 1, &spot)?;
                self.budget.take(1, &spot)?;
                let mut list = Vec::new();
                for item in items {
                    let spot = self.spot(item.span());
                    list.push(self.value(item.get_ref(), spot, depth + 1)?);
                }
                let value = NodeValue::List(list);
                return Ok(Node { spot, value });
            }
            DeValue::String(text) => (text.to_string(), true),
            DeValue::Boolean(truth) => (truth.to_string(), false),
            // As it is written: the parser's own text has neither prefix nor underscores.
            _ => (self.source.text[spot.start..spot.end].to_owned(), false),
        };
        self.budget.take(1, &spot)?;
        let value = NodeValue::Scalar(Scalar { text, quoted });
        Ok(Node { spot, value })
    }
}
