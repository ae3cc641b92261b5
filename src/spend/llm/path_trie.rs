//! Paths of the values that a reader wants, as a trie.

/// The most segments of a path.
pub(super) const MAX_SEGMENTS: usize = 8;
/// The most bytes of a name.
pub(super) const MAX_NAME: usize = 64;

/// The place of a node. Nothing that a reader wants is below [`DEAD`](NodeId::DEAD).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(u8);

impl NodeId {
    pub(super) const DEAD: Self = Self(0);
    pub(super) const ROOT: Self = Self(1);
}

/// The kind of a wanted value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Number(Number),
    /// A text whose length counts.
    Text,
    /// The name of the model.
    Model,
    /// The type of an event.
    Type,
}

/// A number of a usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Input,
    /// Input that others do not contain: read from a cache, written to one, or of a tool.
    CacheRead,
    CacheWrite,
    ToolInput,
    /// The part of the input that was read from a cache.
    CachedInput,
    Output,
    /// Output that others do not contain.
    Thoughts,
    /// The part of the output that is reasoning.
    Reasoning,
    Total,
    /// The choices that a request wants.
    Choices,
}

impl Number {
    pub(super) const COUNT: usize = 10;
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

/// The paths of one format. A segment `*` is each element of an array.
#[derive(Debug, Clone)]
pub(super) struct PathTrie {
    nodes: Vec<Node>,
}

impl PathTrie {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::default(); 2],
        }
    }

    /// Adds a path. Returns whether it fits.
    pub(super) fn add<'a>(
        &mut self,
        segments: impl Iterator<Item = &'a str>,
        target: Target,
    ) -> bool {
        let mut node = NodeId::ROOT;
        for (depth, name) in segments.enumerate() {
            let name = name.as_bytes();
            if depth >= MAX_SEGMENTS || name.len() > MAX_NAME {
                return false;
            }
            node = match self.child(node, name) {
                NodeId::DEAD => {
                    let Ok(id) = u8::try_from(self.nodes.len()) else {
                        return false;
                    };
                    let children = &mut self.nodes[usize::from(node.0)].children;
                    children.push((name.into(), NodeId(id)));
                    self.nodes.push(Node::default());
                    NodeId(id)
                }
                child => child,
            };
        }
        self.nodes[usize::from(node.0)].target = Some(target);
        true
    }

    /// The node below `node` under this name.
    pub(super) fn child(&self, node: NodeId, name: &[u8]) -> NodeId {
        let children = self.nodes[usize::from(node.0)].children.iter();
        let mut found = children.filter(|(child, _)| **child == *name);
        found.next().map_or(NodeId::DEAD, |(_, id)| *id)
    }

    /// The node of the element at this index of an array.
    pub(super) fn element(&self, node: NodeId, index: u32) -> NodeId {
        let children = &self.nodes[usize::from(node.0)].children;
        if children.is_empty() {
            return NodeId::DEAD;
        }
        match self.child(node, b"*") {
            NodeId::DEAD => self.numbered(node, index),
            any => any,
        }
    }

    fn numbered(&self, node: NodeId, index: u32) -> NodeId {
        let mut digits = [0; 10];
        let mut start = digits.len();
        let mut rest = index;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.child(node, &digits[start..]);
            }
        }
    }

    /// The value that is wanted at this node.
    pub(super) fn target(&self, node: NodeId) -> Option<Target> {
        self.nodes[usize::from(node.0)].target
    }

    /// Whether anything below this node is wanted.
    pub(super) fn has_children(&self, node: NodeId) -> bool {
        !self.nodes[usize::from(node.0)].children.is_empty()
    }
}
