//! A scanner of JSON: one pass, no allocation, and a state that survives a split at any byte.
//!
//! It finds the values at the paths of a [`PathTrie`]; whatever else the document has is skipped, at any depth. It
//! does not check the syntax: a document that is no JSON has any or no values.

use memchr::memchr2;

use super::{
    json_number::JsonNumber,
    json_text::{JsonText, MAX_TEXT, whole_text},
    path_trie::{MAX_NAME, MAX_SEGMENTS, NodeId, PathTrie, Target},
};

pub(super) trait FoundValues {
    fn number(&mut self, target: Target, value: u64);

    fn text(&mut self, bytes: u64);

    /// A name of at most 128 bytes.
    fn name(&mut self, target: Target, name: &[u8]);

    /// The end of a document, or of an element of an array that is the document.
    fn end(&mut self);
}

#[derive(Debug)]
pub(super) struct JsonScanner {
    state: State,
    /// The containers that are open and whose values may be wanted, at most [`MAX_SEGMENTS`].
    depth: u8,
    /// The node of each open container, from 1 on.
    nodes: [NodeId; MAX_SEGMENTS + 1],
    /// The index of the element in each open array.
    indices: [u32; MAX_SEGMENTS + 1],
    /// A bit for each open container that is an array.
    arrays: u16,
    next: NodeId,
    /// The containers that are open within one that is skipped.
    skipped: u32,
    text: JsonText,
    number: JsonNumber,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a value, or the end of an array.
    Value,
    /// Before a name, or the end of an object.
    Name,
    InName,
    Colon,
    InText,
    InNumber,
    /// After a value, or within one that nobody wants.
    After,
    InSkippedText {
        escaped: bool,
    },
    /// Within a container that nobody wants.
    Skipped,
}

impl JsonScanner {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Value,
            depth: 0,
            nodes: [NodeId::DEAD; MAX_SEGMENTS + 1],
            indices: [0; MAX_SEGMENTS + 1],
            arrays: 0,
            next: NodeId::ROOT,
            skipped: 0,
            text: JsonText::new(),
            number: JsonNumber::new(),
        }
    }

    /// Forgets an unfinished document.
    pub(super) const fn reset(&mut self) {
        self.state = State::Value;
        self.depth = 0;
        self.skipped = 0;
        self.arrays = 0;
        self.next = NodeId::ROOT;
    }

    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::InName | State::InText => self.read_text(bytes, paths, values),
                State::InSkippedText { escaped } => self.skip_text(bytes, escaped),
                State::Skipped => self.skip(bytes, values),
                State::InNumber => self.read_number(bytes, paths, values),
                State::Value | State::Name | State::Colon | State::After => {
                    self.read_syntax(bytes, paths, values)
                }
            };
        }
    }

    fn read_syntax<'b>(
        &mut self,
        mut bytes: &'b [u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) -> &'b [u8] {
        while let State::Value | State::Name | State::Colon | State::After = self.state
            && let [byte, rest @ ..] = bytes
        {
            bytes = match (self.state, byte) {
                (State::Name, b'"') => self.begin_name(rest, paths),
                (State::Value, b'"') => self.begin_text(rest, paths, values),
                (State::After, b',') => self.continue_container(rest, paths),
                (_, b'}' | b']') => self.close(rest, values),
                (_, b' ' | b'\n' | b'\r' | b'\t') => rest,
                (State::Value, _) => self.begin_value(*byte, rest, paths, values),
                (State::Colon, b':') => self.expect_value(rest),
                (State::After, _) if self.depth == 0 => self.expect_value(bytes),
                // The rest of a literal that nobody wants, or no JSON.
                _ => rest,
            };
        }
        bytes
    }

    const fn expect_value<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        self.state = State::Value;
        bytes
    }

    /// Begins a name. Most end in the same part.
    fn begin_name<'b>(&mut self, bytes: &'b [u8], paths: &PathTrie) -> &'b [u8] {
        if let Some((name, rest)) = whole_text(bytes) {
            self.next = child_of(paths, self.nodes[self.level()], name);
            let value = rest.strip_prefix(b":");
            self.state = if value.is_some() {
                State::Value
            } else {
                State::Colon
            };
            return value.unwrap_or(rest);
        }
        self.text.start();
        self.state = State::InName;
        bytes
    }

    /// Begins a string that is a value. Most end in the same part.
    fn begin_text<'b>(
        &mut self,
        bytes: &'b [u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) -> &'b [u8] {
        let target = paths.target(self.next);
        if let Some((text, rest)) = whole_text(bytes) {
            self.state = State::After;
            match target {
                Some(Target::Text | Target::Texts) => values.text(text.len() as u64),
                Some(target @ (Target::Model | Target::Type)) if text.len() <= MAX_TEXT => {
                    values.name(target, text);
                }
                _ => {}
            }
            return rest;
        }
        self.state = match target {
            Some(target) if !target.is_number() => State::InText,
            _ => State::InSkippedText { escaped: false },
        };
        self.text.start();
        bytes
    }

    fn begin_value<'b>(
        &mut self,
        byte: u8,
        rest: &'b [u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) -> &'b [u8] {
        match byte {
            b'{' | b'[' => self.open(byte == b'[', paths),
            b'0'..=b'9' if paths.target(self.next).is_some_and(Target::is_number) => {
                self.number = JsonNumber::new();
                self.number.read(byte);
                self.state = State::InNumber;
                return self.read_number(rest, paths, values);
            }
            // Outside of documents, such as a byte order mark.
            _ if self.depth == 0 => {}
            _ => {
                self.state = State::After;
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']');
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                return &rest[end..];
            }
        }
        rest
    }

    fn open(&mut self, is_array: bool, paths: &PathTrie) {
        if self.level() == MAX_SEGMENTS || !paths.has_children(self.next) {
            self.skipped = 1;
            self.state = State::Skipped;
            return;
        }
        self.depth += 1;
        let level = self.level();
        self.nodes[level] = self.next;
        self.indices[level] = 0;
        let bit = 1 << self.depth;
        if is_array {
            self.arrays |= bit;
            self.next = paths.element(self.next, 0);
            self.state = State::Value;
        } else {
            self.arrays &= !bit;
            self.state = State::Name;
        }
    }

    const fn level(&self) -> usize {
        self.depth as usize
    }

    const fn is_in_array(&self) -> bool {
        self.arrays & 1 << self.depth != 0
    }

    fn continue_container<'b>(&mut self, bytes: &'b [u8], paths: &PathTrie) -> &'b [u8] {
        if self.depth == 0 {
            self.state = State::Value;
        } else if self.is_in_array() {
            let level = self.level();
            let index = self.indices[level].saturating_add(1);
            self.indices[level] = index;
            self.next = paths.element(self.nodes[level], index);
            self.state = State::Value;
        } else if let [b'"', rest @ ..] = bytes {
            return self.begin_name(rest, paths);
        } else {
            self.state = State::Name;
        }
        bytes
    }

    fn close<'b>(&mut self, bytes: &'b [u8], values: &mut impl FoundValues) -> &'b [u8] {
        self.depth = self.depth.saturating_sub(1);
        self.state = State::After;
        self.end_value(values);
        bytes
    }

    /// Ends a container: the document, if it was the outermost, or an element of it.
    fn end_value(&mut self, values: &mut impl FoundValues) {
        match self.depth {
            0 => {
                self.state = State::Value;
                self.next = NodeId::ROOT;
                values.end();
            }
            1 if self.is_in_array() => values.end(),
            _ => {}
        }
    }

    fn read_text<'b>(
        &mut self,
        bytes: &'b [u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) -> &'b [u8] {
        let target = paths.target(self.next);
        let is_name = self.state == State::InName;
        let is_counted = matches!(target, Some(Target::Text | Target::Texts));
        let keeps = is_name || !is_counted;
        let Some(rest) = self.text.read(bytes, keeps) else {
            return &[];
        };
        if is_name {
            let name = self.text.whole().unwrap_or(b"*");
            self.next = child_of(paths, self.nodes[self.level()], name);
            self.state = State::Colon;
            return rest;
        }
        self.state = State::After;
        match target {
            Some(_) if is_counted => values.text(self.text.length()),
            Some(target) => {
                if let Some(name) = self.text.whole() {
                    values.name(target, name);
                }
            }
            None => {}
        }
        rest
    }

    fn read_number<'b>(
        &mut self,
        bytes: &'b [u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) -> &'b [u8] {
        let end = bytes.iter().position(|byte| !self.number.read(*byte));
        let Some(end) = end else {
            return &[];
        };
        self.state = State::After;
        if let (Some(value), Some(target)) = (self.number.value(), paths.target(self.next)) {
            values.number(target, value);
        }
        &bytes[end..]
    }

    fn skip_text<'b>(&mut self, bytes: &'b [u8], escaped: bool) -> &'b [u8] {
        if escaped {
            self.state = State::InSkippedText { escaped: false };
            return &bytes[1..];
        }
        let Some(at) = memchr2(b'"', b'\\', bytes) else {
            return &[];
        };
        self.state = match bytes[at] {
            b'\\' => State::InSkippedText { escaped: true },
            _ if self.skipped > 0 => State::Skipped,
            _ => State::After,
        };
        &bytes[at + 1..]
    }

    /// Skips a container that nobody wants.
    fn skip<'b>(&mut self, bytes: &'b [u8], values: &mut impl FoundValues) -> &'b [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.state = State::InSkippedText { escaped: false };
                    return &bytes[at + 1..];
                }
                b'{' | b'[' => self.skipped = self.skipped.saturating_add(1),
                b'}' | b']' => {
                    self.skipped -= 1;
                    if self.skipped == 0 {
                        self.state = State::After;
                        self.end_value(values);
                        return &bytes[at + 1..];
                    }
                }
                _ => {}
            }
        }
        &[]
    }
}

/// The node of the member of this name. A member of the name `*` is no element.
fn child_of(paths: &PathTrie, node: NodeId, name: &[u8]) -> NodeId {
    if name.len() > MAX_NAME || name == b"*" {
        return paths.unlisted(node);
    }
    paths.child(node, name)
}
