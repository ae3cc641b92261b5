//! The text of a file, and spans within it.

use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};

/// A file's name and text.
#[derive(Debug)]
#[non_exhaustive]
pub struct SourceText {
    /// The name that problems show, as the caller gave it.
    pub name: String,
    /// The whole text.
    pub text: String,
    /// The byte offset of each line. Computed for the first span, since a large file has many spans.
    line_starts: OnceLock<Box<[usize]>>,
}

impl SourceText {
    /// The text of a file under its name.
    #[must_use]
    pub const fn new(name: String, text: String) -> Self {
        Self {
            name,
            text,
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

    /// The SHA-256 of the text in hexadecimal digits, as `sha256sum` prints it.
    #[must_use]
    pub fn sha256(&self) -> String {
        let digest = Sha256::digest(&self.text);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A range of bytes of a file.
#[derive(Debug, Clone)]
pub struct Span {
    source: Arc<SourceText>,
    start: usize,
    end: usize,
}

impl Span {
    /// The bytes from `start` until just before `end`. Offsets beyond the text mean its end.
    #[must_use]
    pub fn new(source: &Arc<SourceText>, start: usize, end: usize) -> Self {
        Self {
            source: Arc::clone(source),
            start,
            end,
        }
    }

    /// The file.
    #[must_use]
    pub fn source(&self) -> &SourceText {
        &self.source
    }

    /// The offset of the first byte.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// The text of the span; `None` if an offset lies outside of the text or within a character.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.source.text.get(self.start..self.end)
    }

    /// The line and the column, both counted from 1, the column in characters.
    #[must_use]
    pub fn line_and_column(&self) -> (usize, usize) {
        let text = &self.source.text;
        let start = floor_boundary(text, self.start);
        let (line, line_start) = self.source.line_at(start);
        (line, text[line_start..start].chars().count() + 1)
    }

    /// The file and the line, as `rules.yaml:9`: for a message that refers to another place.
    #[must_use]
    pub fn short(&self) -> String {
        format!("{}:{}", self.source.name, self.line_and_column().0)
    }

    /// The text of the line, and how many of its characters the span covers, at least one.
    pub(crate) fn line_and_width(&self) -> (&str, usize) {
        let text = &self.source.text;
        let start = floor_boundary(text, self.start);
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |len| start + len);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let end = floor_boundary(text, self.end).clamp(start, line_end);
        let covered = text[start..end].trim_end().chars().count();
        (line, covered.max(1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_lines_and_columns() {
        let text = "a\nbé c\n\n  d";
        let source = Arc::new(SourceText::new("rules".to_owned(), text.to_owned()));
        let place = |start| Span::new(&source, start, start + 1).line_and_column();
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
