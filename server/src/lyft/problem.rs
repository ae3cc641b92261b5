//! Problems of files: their codes, places and texts.

use std::{error::Error, fmt, sync::Arc};

/// The most faults that are told at once.
const MAX_FAULTS: usize = 20;

/// The longest part of a source line that a message repeats, in characters.
const MAX_LINE_CHARS: usize = 160;

/// What kind of problem it is. Those that rule files of this crate have, too, have the same codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProblemCode {
    /// The file's form, and values of another kind than belongs there.
    R01,
    /// A field that is not known or is missing.
    R02,
    /// A name that is taken.
    R03,
    /// A limit.
    R04,
    /// Two descriptors that are one rule.
    W31,
    /// A field that means nothing where it stands.
    W32,
    /// Several domains in one file.
    W33,
}

/// A file as it was read.
#[derive(Debug)]
pub(super) struct SourceText {
    pub(super) name: String,
    pub(super) text: String,
}

/// A piece of a file, in bytes.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) source: Arc<SourceText>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Spot {
    /// The line and the column, both counted from 1, the column in characters.
    pub(super) fn line_and_column(&self) -> (usize, usize) {
        let (line_start, _) = self.line();
        let text = &self.source.text;
        let start = floor_boundary(text, self.start);
        let line = text[..line_start].matches('\n').count() + 1;
        (line, text[line_start..start].chars().count() + 1)
    }

    /// `rules.yaml:9`, for messages about something else that stands there.
    pub(super) fn short(&self) -> String {
        format!("{}:{}", self.source.name, self.line_and_column().0)
    }

    /// Where the line begins and ends.
    fn line(&self) -> (usize, usize) {
        let text = &self.source.text;
        let start = floor_boundary(text, self.start);
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let length = text[start..].find('\n');
        (
            line_start,
            length.map_or(text.len(), |length| start + length),
        )
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One fault of a file, or one warning.
///
/// `Display` tells the place, the code, the text, and the line with a caret below it:
///
/// ```text
/// rules.yaml:4:7: R02 unknown key "rate_limits"
///    4 |     rate_limits:
///      |     ^^^^^^^^^^^
/// ```
#[derive(Debug, Clone)]
pub struct Problem {
    code: ProblemCode,
    spot: Option<Spot>,
    message: String,
}

impl Problem {
    pub(super) fn new(code: ProblemCode, spot: &Spot, message: impl Into<String>) -> Self {
        Self {
            code,
            spot: Some(spot.clone()),
            message: message.into(),
        }
    }

    /// The code, such as `R02`; warnings have one that begins with `W`.
    #[must_use]
    pub fn code(&self) -> String {
        format!("{:?}", self.code)
    }

    /// Whether the file can be used all the same.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.code >= ProblemCode::W31
    }

    /// The name of the file, as it was given.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.spot.as_ref().map(|spot| spot.source.name.as_str())
    }

    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.spot.as_ref().map(|spot| spot.line_and_column().0)
    }

    /// The column, counted from 1 in characters.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.spot.as_ref().map(|spot| spot.line_and_column().1)
    }

    /// The text without place and code.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(spot) = &self.spot else {
            return write!(f, "{:?} {}", self.code, self.message);
        };
        let (line, column) = spot.line_and_column();
        let name = &spot.source.name;
        write!(
            f,
            "{name}:{line}:{column}: {:?} {}",
            self.code, self.message
        )?;
        excerpt(spot, f)
    }
}

/// The source line, and a caret below the piece.
fn excerpt(spot: &Spot, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (number, column) = spot.line_and_column();
    let (line_start, line_end) = spot.line();
    let text = &spot.source.text;
    // A long line, as JSON may be, is shown around the place.
    let first = (column - 1).saturating_sub(MAX_LINE_CHARS / 2);
    let clean = |c: char| match c {
        '\t' => '\t',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let line = text[line_start..line_end].trim_end();
    let shown: String = line
        .chars()
        .skip(first)
        .take(MAX_LINE_CHARS)
        .map(clean)
        .collect();
    let before = column - 1 - first;
    let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
    let indent: String = shown.chars().take(before).map(blank).collect();
    let (start, end) = (
        floor_boundary(text, spot.start),
        floor_boundary(text, spot.end),
    );
    let covered = text[start..end.clamp(start, line_end)]
        .trim_end()
        .chars()
        .count();
    let room = shown.chars().count().saturating_sub(before);
    let carets = "^".repeat(covered.min(room).max(1));
    write!(f, "\n{number:4} | {shown}\n     | {indent}{carets}")
}

/// Files that cannot be used: up to twenty faults, in the order of their places.
///
/// `Display` tells each in a paragraph, see [`Problem`].
#[derive(Debug, Clone)]
pub struct LyftError {
    problems: Vec<Problem>,
    /// The faults beyond those that are told.
    more: usize,
}

impl LyftError {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        let more = problems.len().saturating_sub(MAX_FAULTS);
        problems.truncate(MAX_FAULTS);
        Self { problems, more }
    }

    /// A file or directory that cannot be read.
    pub(super) fn unreadable(message: String) -> Self {
        let problem = Problem {
            code: ProblemCode::R01,
            spot: None,
            message,
        };
        Self::new(vec![problem])
    }

    /// The faults, at most twenty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for LyftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl Error for LyftError {}
