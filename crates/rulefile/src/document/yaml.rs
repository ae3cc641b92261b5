//! Reads YAML, and JSON as the YAML that it is. Resolves aliases and merge keys.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use granit_parser::{Event, Parser, ScalarStyle, ScanError};

use super::node::{DocumentLimits, Node, NodeCount, NodeEntry, NodeValue, Scalar};
use crate::{
    problems::{Problem, ProblemCode, Report},
    source_text::{SourceText, Span},
};

/// The root of the one document within these bytes of a file, or `None` if it is empty.
///
/// Adds warnings to the report.
///
/// # Errors
///
/// The first problem of the syntax, or of a document beyond the limits.
pub fn read(
    source: &Arc<SourceText>,
    range: Range<usize>,
    limits: DocumentLimits,
    report: &mut Report,
) -> Result<Option<Node>, Problem> {
    let text = &source.text[range.clone()];
    let mut builder = DocumentBuilder {
        source,
        range,
        report,
        open: Vec::new(),
        anchors: HashMap::new(),
        count: NodeCount::new(limits),
        root: None,
        documents: 0,
    };
    for event in Parser::new_from_str(text) {
        let (event, place) = event.map_err(|error| builder.syntax(&error))?;
        builder.event(event, place)?;
    }
    Ok(builder.root.filter(|root| !is_null(root)))
}

/// A list or table until its end event.
struct OpenNode {
    node: Node,
    anchor: usize,
    /// The key whose value is the next event.
    key: Option<(Scalar, Span)>,
    /// Entries of merge keys. The table's own entries have priority.
    merged: Vec<NodeEntry>,
}

struct DocumentBuilder<'s> {
    source: &'s Arc<SourceText>,
    range: Range<usize>,
    report: &'s mut Report,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, Node>,
    count: NodeCount,
    root: Option<Node>,
    documents: usize,
}

impl DocumentBuilder<'_> {
    fn syntax(&self, error: &ScanError) -> Problem {
        let Range { start, end } = self.range;
        let offset = error.marker().byte_offset();
        let at = offset.map_or(end, |offset| start + offset);
        let span = Span::new(self.source, at, at + 1);
        let problem = Problem::new(ProblemCode::R01, &span, error.info());
        // Inside of braces or brackets YAML begins a table at a path's parameter.
        if self.source.text[..at].ends_with('/') && self.source.text[at..].starts_with('{') {
            problem.remedy("put a path with {} in quotes")
        } else {
            problem
        }
    }

    fn span(&self, place: granit_parser::Span) -> Span {
        let range = place.byte_range().unwrap_or(0..0);
        let Range { start, .. } = self.range;
        Span::new(self.source, start + range.start, start + range.end)
    }

    fn event(&mut self, event: Event<'_>, place: granit_parser::Span) -> Result<(), Problem> {
        let span = self.span(place);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let message = "a second document; a rule file has one, so split the file";
                    return Err(Problem::new(ProblemCode::R01, &span, message));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                let text = text.into_owned();
                let value = NodeValue::Scalar(Scalar { text, quoted });
                self.complete(Node { span, value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.start(span, NodeValue::List(Vec::new()), anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.start(span, NodeValue::Table(Vec::new()), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.alias(id, &span),
            _ => Ok(()),
        }
    }

    fn start(&mut self, span: Span, value: NodeValue, anchor: usize) -> Result<(), Problem> {
        self.count.check_depth(self.open.len() + 1, &span)?;
        self.open.push(OpenNode {
            node: Node { span, value },
            anchor,
            key: None,
            merged: Vec::new(),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        match self.open.pop() {
            Some(mut ended) => {
                if let NodeValue::Table(entries) = &mut ended.node.value {
                    add_merged(entries, ended.merged);
                }
                self.complete(ended.node, ended.anchor)
            }
            None => Ok(()),
        }
    }

    /// Repeats the value of an alias. The copy keeps the place of the original.
    fn alias(&mut self, id: usize, span: &Span) -> Result<(), Problem> {
        let Some(node) = self.anchors.get(&id) else {
            let message = "an alias inside of what it stands for";
            return Err(Problem::new(ProblemCode::R01, span, message));
        };
        // Counted before it is copied: aliases of aliases would otherwise take any amount of memory.
        self.count.add(node.count(), span)?;
        self.count
            .check_depth(self.open.len() + node.depth() - 1, span)?;
        let node = node.clone();
        self.complete(node, 0)
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        self.count.add(1, &node.span)?;
        if anchor > 0 {
            self.count.add(node.count(), &node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let entries = match &mut parent.node.value {
            NodeValue::List(items) => {
                items.push(node);
                return Ok(());
            }
            NodeValue::Table(entries) => entries,
            NodeValue::Scalar(_) => return Ok(()),
        };
        match parent.key.take() {
            None => parent.key = Some(key(node)?),
            Some((key, key_span)) if key.text == "<<" => {
                if key.quoted {
                    self.report.push(ProblemCode::W29, &key_span, QUOTED_MERGE);
                }
                merge(&mut parent.merged, node, &key_span)?
            }
            Some((key, key_span)) => entries.push(NodeEntry {
                key: key.text,
                key_quoted: key.quoted,
                key_span,
                value: node,
            }),
        }
        Ok(())
    }
}

fn key(node: Node) -> Result<(Scalar, Span), Problem> {
    match node.value {
        NodeValue::Scalar(scalar) => Ok((scalar, node.span)),
        _ => {
            let message = "a list or table as a key; a key is a word";
            Err(Problem::new(ProblemCode::R01, &node.span, message))
        }
    }
}

const QUOTED_MERGE: &str = "\"<<\" merges here also in quotes, where YAML makes it a plain field; \
                            leave the quotes out";

/// Adds the entries of one table, or of a list of tables.
fn merge(merged: &mut Vec<NodeEntry>, from: Node, key_span: &Span) -> Result<(), Problem> {
    let tables = match from.value {
        NodeValue::List(items) => items,
        _ => vec![from],
    };
    for table in tables {
        let NodeValue::Table(entries) = table.value else {
            let message = "a merge key takes a table, or a list of tables";
            return Err(Problem::new(ProblemCode::R01, key_span, message));
        };
        merged.extend(entries);
    }
    Ok(())
}

/// Adds the merged entries whose keys the table does not have; of several with one key the first.
fn add_merged(entries: &mut Vec<NodeEntry>, merged: Vec<NodeEntry>) {
    if merged.is_empty() {
        return;
    }
    let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    for entry in merged {
        if known.insert(entry.key.clone()) {
            entries.push(entry);
        }
    }
}

fn is_null(node: &Node) -> bool {
    match &node.value {
        NodeValue::Scalar(scalar) => {
            !scalar.quoted && matches!(scalar.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
        }
        _ => false,
    }
}
