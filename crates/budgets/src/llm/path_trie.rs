//! Paths of the values that a reader wants, as a trie.

use std::io::Write as _;

pub(super) use tower_ratelimit_layer::spend::OutputName;

pub(super) const MAX_SEGMENTS: usize = 8;
pub(super) const MAX_NAME: usize = 64;

/// The place of a node. Nothing that a reader wants is below [`DEAD`](NodeId::DEAD).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(u8);

impl NodeId {
    pub(super) const DEAD: Self = Self(0);
    pub(super) const ROOT: Self = Self(1);
    /// Any place below texts: whatever a model has written there has no other meaning.
    const TEXTS: Self = Self(2);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Number(Number),
    /// The most tokens of output that a request sets, and its choices.
    MaxOutput(OutputName),
    Choices,
    /// A text whose length counts.
    Text,
    /// All texts at this place and below it, but labels such as a role.
    Texts,
    /// The name of the model.
    Model,
    /// The type of an event.
    Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// Input that contains what was read from a cache and written to one.
    WholeInput,
    /// Input that may not contain it.
    Input,
    CacheRead,
    CacheWrite,
    /// Input of a tool, which others do not contain.
    ToolInput,
    /// The parts of the input that were read from a cache and written to one.
    CachedInput,
    WrittenInput,
    Output,
    /// Output that others do not contain.
    Thoughts,
    /// The part of the output that is reasoning.
    Reasoning,
    Total,
}

impl Number {
    pub(super) const COUNT: usize = Self::Total as usize + 1;
}

impl Target {
    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::Number(_) | Self::MaxOutput(_) | Self::Choices)
    }
}

#[derive(Debug, Clone, Default)]
struct Node {
    children: Vec<(Box<[u8]>, NodeId)>,
    target: Option<Target>,
}

impl Default for NodeId {
    fn default() -> Self {
        Self::DEAD
    }
}

/// The names of strings in a message that no model has written as text.
const LABELS: [&[u8]; 12] = [
    b"role",
    b"id",
    b"name",
    b"type",
    b"call_id",
    b"item_id",
    b"status",
    b"finish_reason",
    b"stop_reason",
    b"signature",
    b"encrypted_content",
    b"data",
];

/// The paths of one format. A segment `*` is each element of an array.
#[derive(Debug, Clone)]
pub(super) struct PathTrie {
    nodes: Vec<Node>,
}

impl PathTrie {
    pub(super) fn new() -> Self {
        let mut nodes = vec![Node::default(); 3];
        nodes[usize::from(NodeId::TEXTS.0)].target = Some(Target::Texts);
        Self { nodes }
    }

    /// Adds a path. Returns whether it fits.
    pub(super) fn add<'a>(
        &mut self,
        segments: impl Iterator<Item = &'a str>,
        target: Target,
    ) -> bool {
        let node = self.make(segments);
        if let Some(node) = node {
            self.nodes[usize::from(node.0)].target = Some(target);
        }
        node.is_some()
    }

    /// The node at a path, with those above it; `None` if it does not fit.
    fn make<'a>(&mut self, segments: impl Iterator<Item = &'a str>) -> Option<NodeId> {
        let mut node = NodeId::ROOT;
        for (depth, name) in segments.enumerate() {
            if depth >= MAX_SEGMENTS || name.len() > MAX_NAME {
                return None;
            }
            node = match self.listed(node, name.as_bytes()) {
                Some(child) => child,
                None => {
                    let id = NodeId(u8::try_from(self.nodes.len()).ok()?);
                    self.nodes.push(Node::default());
                    self.set_child(node, name, id);
                    id
                }
            };
        }
        Some(node)
    }

    /// Gives a place the meaning of another one, with all that is below. Returns whether it fits.
    pub(super) fn link(&mut self, path: &str, to: &str) -> bool {
        let (parent, name) = match path.rsplit_once('/') {
            Some((parent, name)) => (self.make(parent.split('/')), name),
            None => (Some(NodeId::ROOT), path),
        };
        let nodes = parent.zip(self.make(to.split('/')));
        if let Some((parent, to)) = nodes {
            self.set_child(parent, name, to);
        }
        nodes.is_some()
    }

    fn set_child(&mut self, node: NodeId, name: &str, child: NodeId) {
        let children = &mut self.nodes[usize::from(node.0)].children;
        children.push((name.as_bytes().into(), child));
    }

    /// Lets each element of an array have the members of the document.
    pub(super) fn add_elements(&mut self) -> bool {
        let Ok(id) = u8::try_from(self.nodes.len()) else {
            return false;
        };
        let document = self.nodes[usize::from(NodeId::ROOT.0)].clone();
        self.nodes.push(document);
        self.set_child(NodeId::ROOT, "*", NodeId(id));
        true
    }

    fn listed(&self, node: NodeId, name: &[u8]) -> Option<NodeId> {
        let mut children = self.nodes[usize::from(node.0)].children.iter();
        let found = children.find(|(child, _)| **child == *name);
        found.map(|(_, id)| *id)
    }

    pub(super) fn child(&self, node: NodeId, name: &[u8]) -> NodeId {
        match self.listed(node, name) {
            Some(child) => child,
            None => match self.unlisted(node) {
                NodeId::DEAD => NodeId::DEAD,
                _ if LABELS.contains(&name) => NodeId::DEAD,
                texts => texts,
            },
        }
    }

    /// The node below `node` under a name that no path has.
    pub(super) fn unlisted(&self, node: NodeId) -> NodeId {
        match self.target(node) {
            Some(Target::Texts) => NodeId::TEXTS,
            _ => NodeId::DEAD,
        }
    }

    pub(super) fn element(&self, node: NodeId, index: u32) -> NodeId {
        let children = &self.nodes[usize::from(node.0)].children;
        if children.is_empty() {
            return self.unlisted(node);
        }
        match self.listed(node, b"*") {
            Some(any) => any,
            None => self.numbered(node, index),
        }
    }

    /// The element of this index by its name, the digits.
    fn numbered(&self, node: NodeId, index: u32) -> NodeId {
        let mut digits = [0; 10];
        let mut room = &mut digits[..];
        let _ = write!(room, "{index}");
        let length = 10 - room.len();
        self.child(node, &digits[..length])
    }

    pub(super) fn target(&self, node: NodeId) -> Option<Target> {
        self.nodes[usize::from(node.0)].target
    }

    /// Whether anything below this node is wanted.
    pub(super) fn has_children(&self, node: NodeId) -> bool {
        let node = &self.nodes[usize::from(node.0)];
        !node.children.is_empty() || node.target == Some(Target::Texts)
    }
}
