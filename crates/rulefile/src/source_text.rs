//! The text of a file and its format, and spans within the text; paths within a message, which has no text.

use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};

use sha2::{Digest as _, Sha256};

/// The character with which editors of Windows begin a file in UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A file's name and text.
#[derive(Debug)]
#[non_exhaustive]
pub struct SourceText {
    /// The name that problems show, as the caller gave it.
    pub name: String,
    /// The whole text, without a byte order mark.
    pub text: String,
    /// Whether the file begins with a byte order mark.
    has_mark: bool,
    /// The byte offset of each line. Computed for the first span, since a large file has many spans.
    line_starts: OnceLock<Box<[usize]>>,
}

impl SourceText {
    /// The text of a file under its name.
    pub fn new(name: String, mut text: String) -> Self {
        let has_mark = text.starts_with(BYTE_ORDER_MARK);
        if has_mark {
            text.drain(..BYTE_ORDER_MARK.len_utf8());
        }
        Self {
            name,
            text,
            has_mark,
            line_starts: OnceLock::new(),
        }
    }

    /// The number of the line at a byte offset, counted from 1, and the offset at which that line starts.
    fn line_at(&self, offset: usize) -> (usize, usize) {
        let starts = self.line_starts.get_or_init(|| {
            let ends = self.text.match_indices('\n').map(|(end, _)| end + 1);
            std::iter::once(0).chain(ends).collect()
        });
        let line = starts.partition_point(|start| *start <= offset);
        (line, starts[line - 1])
    }

    /// The SHA-256 of the file in hexadecimal digits, as `sha256sum` prints it.
    pub fn sha256(&self) -> String {
        if self.has_mark {
            Self::sha256_of(format!("{BYTE_ORDER_MARK}{}", self.text).as_bytes())
        } else {
            Self::sha256_of(self.text.as_bytes())
        }
    }

    /// The SHA-256 of other bytes, in the same form.
    pub fn sha256_of(bytes: &[u8]) -> String {
        let digest = Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The path of a value in a message, such as `descriptors[3].rate_limit`.
#[derive(Debug)]
pub struct MessagePath {
    parent: Option<Arc<Self>>,
    field: &'static str,
    index: Option<usize>,
}

impl MessagePath {
    /// A field of the value at `parent`, or of the message itself; with an index for an item of a list.
    pub fn new(parent: Option<&Arc<Self>>, field: &'static str, index: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            parent: parent.cloned(),
            field,
            index,
        })
    }
}

impl fmt::Display for MessagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = &self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.field)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// A range of bytes of a file, or a value of a message.
#[derive(Debug, Clone)]
pub struct Span {
    source: Arc<SourceText>,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Text {
        start: usize,
        end: usize,
    },
    Message {
        /// The position among the values of the message, which sorts problems.
        order: usize,
        /// `None` for the message itself.
        path: Option<Arc<MessagePath>>,
    },
}

impl Span {
    /// The bytes from `start` until just before `end`. Offsets beyond the text mean its end.
    pub fn new(source: &Arc<SourceText>, start: usize, end: usize) -> Self {
        Self {
            source: Arc::clone(source),
            place: Place::Text { start, end },
        }
    }

    /// A value of a message, whose source has its name and no text. `order` is the position among its values.
    pub fn in_message(
        source: &Arc<SourceText>,
        order: usize,
        path: Option<Arc<MessagePath>>,
    ) -> Self {
        Self {
            source: Arc::clone(source),
            place: Place::Message { order, path },
        }
    }

    /// The file or the message.
    pub fn source(&self) -> &SourceText {
        &self.source
    }

    /// The offset of the first byte, or the position in the message.
    pub const fn start(&self) -> usize {
        match self.place {
            Place::Text { start, .. } => start,
            Place::Message { order, .. } => order,
        }
    }

    /// The text of the span; `None` if an offset lies outside of the text or within a character, and in a message.
    pub fn text(&self) -> Option<&str> {
        match self.place {
            Place::Text { start, end } => self.source.text.get(start..end),
            Place::Message { .. } => None,
        }
    }

    /// The line and the column, both counted from 1, the column in characters; `None` in a message.
    pub fn line_and_column(&self) -> Option<(usize, usize)> {
        let Place::Text { start, .. } = self.place else {
            return None;
        };
        let text = &self.source.text;
        let start = floor_boundary(text, start);
        let (line, line_start) = self.source.line_at(start);
        Some((line, text[line_start..start].chars().count() + 1))
    }

    /// The file and the line, as `rules.yaml:9`, or the message and the path, as `shop: descriptors[3]`: for a text
    /// that refers to another place.
    pub fn short(&self) -> String {
        let name = &self.source.name;
        match &self.place {
            Place::Message { path: None, .. } => name.clone(),
            Place::Message {
                path: Some(path), ..
            } => format!("{name}: {path}"),
            Place::Text { .. } => {
                let (line, _) = self.line_and_column().unwrap_or_default();
                format!("{name}:{line}")
            }
        }
    }

    /// The text of the line, and how many of its characters the span covers, at least one; `None` in a message.
    pub(crate) fn line_and_width(&self) -> Option<(&str, usize)> {
        let Place::Text { start, end } = self.place else {
            return None;
        };
        let text = &self.source.text;
        let start = floor_boundary(text, start);
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |len| start + len);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let end = floor_boundary(text, end).clamp(start, line_end);
        let covered = text[start..end].trim_end().chars().count();
        Some((line, covered.max(1)))
    }
}

/// The last character boundary at or before an offset.
fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The format of a rule file. All three have the same fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// YAML 1.2; in directories `*.yaml` and `*.yml`.
    Yaml,
    /// JSON; in directories `*.json`. The YAML parser reads it, since JSON is YAML.
    Json,
    /// TOML 1.1; in directories `*.toml`.
    Toml,
}

impl Format {
    /// The format by the path's extension: `yaml`, `yml`, `json` or `toml` in any case.
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let source = SourceText::new("rules".to_owned(), "\u{feff}domain: a".to_owned());
        assert_eq!(source.text, "domain: a");
        let of_file = SourceText::sha256_of("\u{feff}domain: a".as_bytes());
        assert_eq!(source.sha256(), of_file);
    }

    #[test]
    fn spans_have_lines_and_columns() {
        let text = "a\nbé c\n\n  d";
        let source = Arc::new(SourceText::new("rules".to_owned(), text.to_owned()));
        let place = |start| {
            let place = Span::new(&source, start, start + 1).line_and_column();
            place.expect("a line")
        };
        assert_eq!(place(0), (1, 1));
        // A line's end belongs to it.
        assert_eq!(place(1), (1, 2));
        assert_eq!(place(text.find('b').expect("b")), (2, 1));
        assert_eq!(place(text.find('c').expect("c")), (2, 4));
        assert_eq!(place(text.find('d').expect("d")), (4, 3));
        assert_eq!(place(text.len() + 7), (4, 4));
        // Every offset agrees with a count of the lines before it.
        for (offset, _) in text.char_indices() {
            let lines_before = text[..offset].matches('\n').count();
            assert_eq!(place(offset).0, lines_before + 1, "{offset}");
        }
    }
}
