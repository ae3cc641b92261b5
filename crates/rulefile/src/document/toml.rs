//! Reads TOML.

use std::{ops::Range, sync::Arc};

use toml::de::{DeTable, DeValue};

use super::node::{DocumentLimits, Node, NodeCount, NodeEntry, NodeValue, Scalar};
use crate::{
    problems::{Problem, ProblemCode},
    source_text::{SourceText, Span},
};

/// The root table, or all problems of the syntax.
pub(super) fn read(source: &Arc<SourceText>, limits: DocumentLimits) -> Result<Node, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let problems = errors.iter().map(|error| {
        let range = error.span().unwrap_or(0..0);
        let span = Span::new(source, range.start, range.end);
        let message = error.message().trim().replace('\n', ", ");
        Problem::new(ProblemCode::R01, &span, message)
    });
    let problems: Vec<Problem> = problems.collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut reader = TomlReader {
        source,
        count: NodeCount::new(limits),
    };
    let root = Span::new(source, 0, 0);
    let root = reader.table(table.get_ref(), root, 0);
    root.map_err(|problem| vec![problem])
}

struct TomlReader<'s> {
    source: &'s Arc<SourceText>,
    count: NodeCount,
}

impl TomlReader<'_> {
    fn span(&self, range: Range<usize>) -> Span {
        Span::new(self.source, range.start, range.end)
    }

    fn table(&mut self, table: &DeTable<'_>, span: Span, depth: usize) -> Result<Node, Problem> {
        self.count.check_depth(depth + 1, &span)?;
        self.count.add(1, &span)?;
        let mut entries = Vec::new();
        for (key, value) in table {
            let key_span = self.span(key.span());
            self.count.add(1, &key_span)?;
            let span = self.span(value.span());
            entries.push(NodeEntry {
                key: key.get_ref().to_string(),
                key_quoted: true,
                key_span,
                value: self.value(value.get_ref(), span, depth + 1)?,
            });
        }
        // The parser sorts by key. Problems and rules are in the order of the file.
        entries.sort_by_key(|entry| entry.key_span.start());
        Ok(Node {
            span,
            value: NodeValue::Table(entries),
        })
    }

    fn value(&mut self, value: &DeValue<'_>, span: Span, depth: usize) -> Result<Node, Problem> {
        let (text, quoted) = match value {
            DeValue::Table(table) => return self.table(table, span, depth),
            DeValue::Array(items) => {
                self.count.check_depth(depth + 1, &span)?;
                self.count.add(1, &span)?;
                let mut list = Vec::new();
                for item in items {
                    let span = self.span(item.span());
                    list.push(self.value(item.get_ref(), span, depth + 1)?);
                }
                let value = NodeValue::List(list);
                return Ok(Node { span, value });
            }
            DeValue::String(text) => (text.to_string(), true),
            DeValue::Boolean(boolean) => (boolean.to_string(), false),
            // The source's text and not the parser's, which has neither prefix nor underscores.
            _ => (span.text().unwrap_or_default().to_owned(), false),
        };
        self.count.add(1, &span)?;
        let value = NodeValue::Scalar(Scalar { text, quoted });
        Ok(Node { span, value })
    }
}
