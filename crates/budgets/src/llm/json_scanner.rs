//! A scanner of JSON: one pass, no allocation, and a state that survives a split at any byte; and the
//! trie of the paths that it looks for.
//!
//! It finds the values at the paths of a [`PathTrie`]; whatever else the document has is skipped, at any depth. It
//! does not check the syntax: a document that is no JSON has any or no values.

use std::io::Write as _;

use memchr::memchr2;

pub(super) use tower_ratelimit_layer::spend::OutputName;

pub(super) trait FoundValues {
    /// `None` for a number that is not whole, too large, or longer than 128 bytes.
    fn number(&mut self, target: Target, value: Option<u64>);

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
    /// The text or number that is being read.
    text: JsonText,
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
            let name = Some(text).filter(|text| text.len() <= MAX_TEXT);
            found_text(target, (text.len() as u64, name), values);
            return rest;
        }
        self.text.start();
        self.state = State::InText;
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
                self.text.start();
                self.text.push(&[byte]);
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
        let Some(rest) = self.text.read(bytes) else {
            return &[];
        };
        if self.state == State::InName {
            let name = self.text.whole().unwrap_or(b"*");
            self.next = child_of(paths, self.nodes[self.level()], name);
            self.state = State::Colon;
        } else if self.skipped > 0 {
            self.state = State::Skipped;
        } else {
            self.state = State::After;
            let text = (self.text.length, self.text.whole());
            found_text(paths.target(self.next), text, values);
        }
        rest
    }

    fn read_number<'b>(
        &mut self,
        bytes: &'b [u8],
        paths: &PathTrie,
        values: &mut impl FoundValues,
    ) -> &'b [u8] {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b".eE+-".contains(byte);
        let end = bytes.iter().position(|byte| !is_part(byte));
        self.text.push(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else {
            return &[];
        };
        self.state = State::After;
        let value = self.text.whole().and_then(whole_number);
        if let Some(target) = paths.target(self.next) {
            values.number(target, value);
        }
        &bytes[end..]
    }

    /// Skips a container that nobody wants.
    fn skip<'b>(&mut self, bytes: &'b [u8], values: &mut impl FoundValues) -> &'b [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.text.start();
                    self.state = State::InText;
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

/// Passes on a text of this length, whose bytes may be too many for a name.
fn found_text(
    target: Option<Target>,
    (length, name): (u64, Option<&[u8]>),
    values: &mut impl FoundValues,
) {
    match (target, name) {
        (Some(Target::Text | Target::Texts), _) => values.text(length),
        (Some(target @ (Target::Model | Target::Type)), Some(name)) => values.name(target, name),
        _ => {}
    }
}

/// The node of the member of this name. A member of the name `*` is no element.
fn child_of(paths: &PathTrie, node: NodeId, name: &[u8]) -> NodeId {
    if name.len() > MAX_NAME || name == b"*" {
        return paths.unlisted(node);
    }
    paths.child(node, name)
}

/// The most bytes that are kept: a model's name, or a number.
const MAX_TEXT: usize = 128;

/// The string that begins here, if it ends in these bytes and has no escape, and the bytes behind its quote.
fn whole_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = end_of_text(bytes)?;
    let (text, rest) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    (bytes[end] == b'"').then_some((text, rest))
}

/// The place of the first quote or backslash. Most strings are short: a search by vectors would take longer to begin
/// than to end, so that the first bytes are searched by words.
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    const WORDS: usize = 4;
    const BYTE: u64 = u64::MAX / 0xff;
    // The lowest set bit is that of the first byte which is 0.
    let zeros = |word: u64| word.wrapping_sub(BYTE) & !word & (BYTE << 7);
    let mut at = 0;
    for _ in 0..WORDS {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        let of = |byte: u8| zeros(word ^ (BYTE * u64::from(byte)));
        let ends = of(b'"') | of(b'\\');
        if ends != 0 {
            return Some(at + (ends.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    Some(at + memchr2(b'"', b'\\', bytes.get(at..)?)?)
}

/// A string that is being read. It survives a split at any byte.
#[derive(Debug)]
struct JsonText {
    kept: [u8; MAX_TEXT],
    /// The bytes of the whole decoded string.
    length: u64,
    escape: Escape,
    /// The first half of a pair of surrogates.
    high: u16,
}

#[derive(Debug, Clone, Copy)]
enum Escape {
    None,
    Started,
    /// Within the digits of `\u`.
    Digits {
        left: u8,
        value: u16,
    },
}

impl JsonText {
    const fn new() -> Self {
        Self {
            kept: [0; MAX_TEXT],
            length: 0,
            escape: Escape::None,
            high: 0,
        }
    }

    const fn start(&mut self) {
        self.length = 0;
        self.escape = Escape::None;
        self.high = 0;
    }

    /// The string, if all of it was kept.
    fn whole(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.length).ok()?;
        self.kept.get(..length)
    }

    /// Reads up to the quote that ends the string. Returns the rest behind the quote, or `None` without one.
    fn read<'b>(&mut self, mut bytes: &'b [u8]) -> Option<&'b [u8]> {
        loop {
            match self.escape {
                Escape::None => {
                    let end = memchr2(b'"', b'\\', bytes);
                    let plain = end.map_or(bytes, |end| &bytes[..end]);
                    if !plain.is_empty() {
                        self.high = 0;
                        self.push(plain);
                    }
                    let end = end?;
                    let byte = bytes[end];
                    bytes = &bytes[end + 1..];
                    if byte == b'"' {
                        return Some(bytes);
                    }
                    self.escape = Escape::Started;
                }
                Escape::Started => {
                    let (byte, rest) = bytes.split_first()?;
                    bytes = rest;
                    self.escape = Escape::None;
                    self.unescape(*byte);
                }
                Escape::Digits { left, value } => {
                    let (byte, rest) = bytes.split_first()?;
                    bytes = rest;
                    let digit = char::from(*byte).to_digit(16).unwrap_or(0) as u16;
                    let value = value << 4 | digit;
                    if left > 1 {
                        let left = left - 1;
                        self.escape = Escape::Digits { left, value };
                    } else {
                        self.escape = Escape::None;
                        self.push_unit(value);
                    }
                }
            }
        }
    }

    fn unescape(&mut self, byte: u8) {
        let decoded = match byte {
            b'u' => {
                self.escape = Escape::Digits { left: 4, value: 0 };
                return;
            }
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        };
        self.high = 0;
        self.push(&[decoded]);
    }

    /// Adds a unit of UTF-16. A half that has no other half is no character, and adds nothing.
    fn push_unit(&mut self, unit: u16) {
        let high = std::mem::take(&mut self.high);
        if (0xd800..0xdc00).contains(&unit) {
            self.high = unit;
            return;
        }
        let pair = [high, unit];
        let units = if high == 0 { &pair[1..] } else { &pair[..] };
        for decoded in char::decode_utf16(units.iter().copied()).flatten() {
            self.push(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Ok(start) = usize::try_from(self.length) {
            let end = start.saturating_add(bytes.len());
            if let Some(room) = self.kept.get_mut(start..end) {
                room.copy_from_slice(bytes);
            }
        }
        self.length = self.length.saturating_add(bytes.len() as u64);
    }
}

/// A whole number in any spelling: `1000`, `1000.0` and `1e3` are one. `None` if it is not whole, or too large.
fn whole_number(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.bytes().chain(decimals.bytes());
    // Without them the last digit is no 0, so that a negative power leaves a fraction.
    let zeros = digits
        .clone()
        .rev()
        .take_while(|digit| *digit == b'0')
        .count();
    let mut digits = digits.take(whole.len() + decimals.len() - zeros);
    let number = digits.try_fold(0_u64, |number, digit| {
        let digit = char::from(digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })?;
    if number == 0 {
        return Some(0);
    }
    // Both are at most `MAX_TEXT`.
    let power = i64::from(exponent.parse::<i32>().ok()?) + zeros as i64 - decimals.len() as i64;
    number.checked_mul(10_u64.checked_pow(u32::try_from(power).ok()?)?)
}

const MAX_SEGMENTS: usize = 8;
const MAX_NAME: usize = 64;

/// The place of a node. Nothing that a reader wants is below [`DEAD`](NodeId::DEAD).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeId(u8);

impl NodeId {
    const DEAD: Self = Self(0);
    const ROOT: Self = Self(1);
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
    const fn is_number(self) -> bool {
        matches!(self, Self::Number(_) | Self::MaxOutput(_) | Self::Choices)
    }
}

#[derive(Debug, Clone, Default)]
struct Node {
    children: Vec<(Box<[u8]>, NodeId)>,
    target: Option<Target>,
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

    fn child(&self, node: NodeId, name: &[u8]) -> NodeId {
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
    fn unlisted(&self, node: NodeId) -> NodeId {
        match self.target(node) {
            Some(Target::Texts) => NodeId::TEXTS,
            _ => NodeId::DEAD,
        }
    }

    fn element(&self, node: NodeId, index: u32) -> NodeId {
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

    fn target(&self, node: NodeId) -> Option<Target> {
        self.nodes[usize::from(node.0)].target
    }

    /// Whether anything below this node is wanted.
    fn has_children(&self, node: NodeId) -> bool {
        let node = &self.nodes[usize::from(node.0)];
        !node.children.is_empty() || node.target == Some(Target::Texts)
    }
}

#[cfg(test)]
mod tests {
    use super::whole_number;

    fn of(text: &str) -> Option<u64> {
        whole_number(text.as_bytes())
    }

    #[test]
    fn whole_numbers_have_one_value_in_every_spelling() {
        for text in [
            "1000",
            "1000.0",
            "1e3",
            "1E+3",
            "10000e-1",
            "0.001e6",
            "1000.000e0",
        ] {
            assert_eq!(of(text), Some(1_000), "{text}");
        }
        for text in ["0", "0.0", "0e9999", "0.000e-7"] {
            assert_eq!(of(text), Some(0), "{text}");
        }
        assert_eq!(of("102030"), Some(102_030));
        assert_eq!(of("1.5e1"), Some(15));
        assert_eq!(of("18446744073709551615"), Some(u64::MAX));
        assert_eq!(of("1844674407370955161.5e1"), Some(u64::MAX));
    }

    #[test]
    fn fractions_and_numbers_that_are_too_large_have_none() {
        for text in [
            "1.5",
            "1e-1",
            "1000.0001",
            "18446744073709551616",
            "1e20",
            "2e19",
            "1e99999999999999",
            "1.2.3",
            "1-2",
            "1e3e4",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
