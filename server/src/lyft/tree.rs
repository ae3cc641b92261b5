//! YAML as a tree in which every key and value knows its place. Aliases and merge keys are resolved.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::{
    problem::{Problem, ProblemCode, SourceText, Spot},
    typed::Typed,
};

/// The longest file that is read.
pub(super) const MAX_FILE_BYTES: usize = 16 << 20;

/// The most values of one file, those of aliases included.
const MAX_NODES: usize = 2_000_000;

/// The deepest nesting of lists and tables. A descriptor in another takes two.
const MAX_DEPTH: usize = 64;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) spot: Spot,
    pub(super) value: NodeValue,
}

/// A value of one of three kinds.
#[derive(Debug, Clone)]
pub(super) enum NodeValue {
    Scalar(Scalar),
    List(Vec<Node>),
    Table(Vec<NodeEntry>),
}

/// A value without parts, as the text that stands in the file.
#[derive(Debug, Clone)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Whether it is a text by its notation.
    pub(super) quoted: bool,
}

/// A key of a table, and its value.
#[derive(Debug, Clone)]
pub(super) struct NodeEntry {
    pub(super) key: Scalar,
    pub(super) key_spot: Spot,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn entries(&self) -> &[NodeEntry] {
        match &self.value {
            NodeValue::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a table's key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|entry| entry.key.text == key);
        entry.map(|entry| &entry.value)
    }

    fn count(&self) -> usize {
        1 + match &self.value {
            NodeValue::Scalar(_) => 0,
            NodeValue::List(items) => items.iter().map(Self::count).sum(),
            NodeValue::Table(entries) => entries.iter().map(|entry| 1 + entry.value.count()).sum(),
        }
    }

    fn depth(&self) -> usize {
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

/// The tree of the document that lies within these bytes of the source; none if there is nothing in it.
pub(super) fn read(
    source: &Arc<SourceText>,
    (start, end): (usize, usize),
) -> Result<Option<Node>, Problem> {
    let mut builder = TreeBuilder {
        source,
        start,
        open: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        root: None,
    };
    for event in Parser::new_from_str(&source.text[start..end]) {
        let (event, span) = event.map_err(|error| builder.syntax(&error, end))?;
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
    keys: HashSet<String>,
    /// What merge keys bring; what the table says itself goes before it.
    merged: Vec<NodeEntry>,
}

struct TreeBuilder<'s> {
    source: &'s Arc<SourceText>,
    start: usize,
    open: Vec<Opened>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

impl TreeBuilder<'_> {
    fn syntax(&self, error: &ScanError, end: usize) -> Problem {
        let offset = error.marker().byte_offset();
        let at = offset.map_or(end, |offset| self.start + offset);
        fault(&self.at(at, at + 1), error.info())
    }

    fn at(&self, start: usize, end: usize) -> Spot {
        Spot {
            source: Arc::clone(self.source),
            start,
            end,
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let range = span.byte_range().unwrap_or(0..0);
        let spot = self.at(self.start + range.start, self.start + range.end);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                let text = text.into_owned();
                let value = NodeValue::Scalar(Scalar { text, quoted });
                self.complete(Node { spot, value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(spot, NodeValue::List(Vec::new()), anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.begin(spot, NodeValue::Table(Vec::new()), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.alias(id, &spot),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, spot: Spot, value: NodeValue, anchor: usize) -> Result<(), Problem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(&spot));
        }
        self.open.push(Opened {
            node: Node { spot, value },
            anchor,
            key: None,
            keys: HashSet::new(),
            merged: Vec::new(),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(mut ended) = self.open.pop() else {
            return Ok(());
        };
        if let NodeValue::Table(entries) = &mut ended.node.value {
            for entry in ended.merged {
                if ended.keys.insert(entry.key.text.clone()) {
                    entries.push(entry);
                }
            }
        }
        self.complete(ended.node, ended.anchor)
    }

    /// What an alias stands for keeps the place at which it was said.
    fn alias(&mut self, id: usize, spot: &Spot) -> Result<(), Problem> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(fault(spot, "an alias inside of what it stands for"));
        };
        let (count, depth) = (node.count(), node.depth());
        if self.open.len() + depth > MAX_DEPTH + 1 {
            return Err(too_deep(spot));
        }
        // Before the copy: an alias of aliases of aliases is where the memory would go.
        self.take(count, spot)?;
        let node = self.anchors[&id].clone();
        self.complete(node, 0)
    }

    fn take(&mut self, count: usize, spot: &Spot) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(count);
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values; split the file");
            return Err(fault(spot, message));
        }
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        self.take(1, &node.spot)?;
        if anchor > 0 {
            self.take(node.count(), &node.spot)?;
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
            None => {
                let (key, spot) = key(node)?;
                if key.text != "<<" && !parent.keys.insert(key.text.clone()) {
                    return Err(fault(&spot, format!("the key {:?} stands twice", key.text)));
                }
                parent.key = Some((key, spot));
            }
            Some((key, spot)) if key.text == "<<" => merge(&mut parent.merged, node, &spot)?,
            Some((key, key_spot)) => entries.push(NodeEntry {
                key,
                key_spot,
                value: node,
            }),
        }
        Ok(())
    }
}

fn fault(spot: &Spot, message: impl Into<String>) -> Problem {
    Problem::new(ProblemCode::R01, spot, message)
}

fn too_deep(spot: &Spot) -> Problem {
    let message = format!("lists and tables are nested more than {MAX_DEPTH} deep");
    fault(spot, message)
}

fn is_null(node: &Node) -> bool {
    matches!(&node.value, NodeValue::Scalar(scalar) if scalar.typed() == Typed::Null)
}

fn key(node: Node) -> Result<(Scalar, Spot), Problem> {
    match node.value {
        NodeValue::Scalar(scalar) => Ok((scalar, node.spot)),
        _ => Err(fault(
            &node.spot,
            "a list or table as a key; a key is a text",
        )),
    }
}

/// Takes over one table or several.
fn merge(merged: &mut Vec<NodeEntry>, from: Node, key_spot: &Spot) -> Result<(), Problem> {
    let tables = match from.value {
        NodeValue::List(items) => items,
        _ => vec![from],
    };
    for table in tables {
        let NodeValue::Table(entries) = table.value else {
            let message = "a merge key takes a table, or a list of tables";
            return Err(fault(key_spot, message));
        };
        merged.extend(entries);
    }
    Ok(())
}
