//! YAML, and the JSON that is also YAML, as a tree. Aliases and merge keys are resolved.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::node::{Node, NodeBudget, NodeEntry, NodeValue, Scalar, TreeBounds};
use crate::rules::{
    problem::{Problem, ProblemCode, SourceText, Spot},
    report::Report,
};

/// The tree of the one document within these bytes of a file; none if there is nothing in it.
///
/// Warnings are added to the report.
///
/// # Errors
///
/// What is wrong with the form, or goes beyond the bounds.
pub fn read(
    source: &Arc<SourceText>,
    range: Range<usize>,
    bounds: TreeBounds,
    report: &mut Report,
) -> Result<Option<Node>, Problem> {
    let text = &source.text[range.clone()];
    let mut builder = TreeBuilder {
        source,
        range,
        report,
        open: Vec::new(),
        anchors: HashMap::new(),
        budget: NodeBudget::new(bounds),
        root: None,
        documents: 0,
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| builder.syntax(&error))?;
        builder.event(event, span)?;
    }
    Ok(builder.root.filter(|root| !is_null(root)))
}

/// A list or table whose end has not come.
struct Opened {
    node: Node,
    anchor: usize,
    /// The key whose value comes next.
    key: Option<(Scalar, Spot)>,
    /// What merge keys bring; what the table says itself goes before it.
    merged: Vec<NodeEntry>,
}

struct TreeBuilder<'s> {
    source: &'s Arc<SourceText>,
    range: Range<usize>,
    report: &'s mut Report,
    open: Vec<Opened>,
    anchors: HashMap<usize, Node>,
    budget: NodeBudget,
    root: Option<Node>,
    documents: usize,
}

impl TreeBuilder<'_> {
    fn syntax(&self, error: &ScanError) -> Problem {
        let Range { start, end } = self.range;
        let offset = error.marker().byte_offset();
        let at = offset.map_or(end, |offset| start + offset);
        let spot = Spot::new(self.source, at, at + 1);
        let problem = Problem::new(ProblemCode::R01, &spot, error.info());
        // Within braces or brackets YAML begins a table where a path has a parameter.
        match self.source.text[..at].ends_with('/') && self.source.text[at..].starts_with('{') {
            true => problem.remedy("put a path with {} in quotes"),
            false => problem,
        }
    }

    fn spot(&self, span: Span) -> Spot {
        let range = span.byte_range().unwrap_or(0..0);
        let Range { start, .. } = self.range;
        Spot::new(self.source, start + range.start, start + range.end)
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let spot = self.spot(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let message = "a second document; a rule file has one, so split the file";
                    return Err(Problem::new(ProblemCode::R01, &spot, message));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                let text = text.into_owned();
                let value = NodeValue::Scalar(Scalar { text, quoted });
                self.complete(Node { spot, value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.start(spot, NodeValue::List(Vec::new()), anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.start(spot, NodeValue::Table(Vec::new()), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.alias(id, &spot),
            _ => Ok(()),
        }
    }

    fn start(&mut self, spot: Spot, value: NodeValue, anchor: usize) -> Result<(), Problem> {
        self.budget.check_depth(self.open.len() + 1, &spot)?;
        self.open.push(Opened {
            node: Node { spot, value },
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

    /// What an alias stands for keeps the place at which it was said.
    fn alias(&mut self, id: usize, spot: &Spot) -> Result<(), Problem> {
        let Some(node) = self.anchors.get(&id) else {
            let message = "an alias inside of what it stands for";
            return Err(Problem::new(ProblemCode::R01, spot, message));
        };
        // Before the copy: an alias of aliases of aliases is where the memory would go.
        self.budget.take(node.count(), spot)?;
        self.budget
            .check_depth(self.open.len() + node.depth() - 1, spot)?;
        let node = node.clone();
        self.complete(node, 0)
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        self.budget.take(1, &node.spot)?;
        if anchor > 0 {
            self.budget.take(node.count(), &node.spot)?;
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
            Some((key, key_spot)) if key.text == "<<" => {
                if key.quoted {
                    self.report.fault(ProblemCode::W29, &key_spot, QUOTED_MERGE);
                }
                merge(&mut parent.merged, node, &key_spot)?
            }
            Some((key, key_spot)) => entries.push(NodeEntry {
                key: key.text,
                key_quoted: key.quoted,
                key_spot,
                value: node,
            }),
        }
        Ok(())
    }
}

fn key(node: Node) -> Result<(Scalar, Spot), Problem> {
    match node.value {
        NodeValue::Scalar(scalar) => Ok((scalar, node.spot)),
        _ => {
            let message = "a list or table as a key; a key is a word";
            Err(Problem::new(ProblemCode::R01, &node.spot, message))
        }
    }
}

const QUOTED_MERGE: &str = "\"<<\" merges here also in quotes, where YAML makes it a plain field; \
                            leave the quotes out";

/// Takes over one table or several.
fn merge(merged: &mut Vec<NodeEntry>, from: Node, key_spot: &Spot) -> Result<(), Problem> {
    let tables = match from.value {
        NodeValue::List(items) => items,
        _ => vec![from],
    };
    for table in tables {
        let NodeValue::Table(entries) = table.value else {
            let message = "a merge key takes a table, or a list of tables";
            return Err(Problem::new(ProblemCode::R01, key_spot, message));
        };
        merged.extend(entries);
    }
    Ok(())
}

/// Adds what the table does not say itself; of several that say it the first counts.
fn add_merged(entries: &mut Vec<NodeEntry>, merged: Vec<NodeEntry>) {
    if merged.is_empty() {
        return;
    }
    let mut said: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    for entry in merged {
        if said.insert(entry.key.clone()) {
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
