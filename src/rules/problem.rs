//! Problems of rule files: their codes, places and texts.

use std::{
    error::Error,
    fmt,
    sync::{Arc, OnceLock},
};

use sha2::{Digest as _, Sha256};

/// The most faults that are told at once.
pub(super) const MAX_FAULTS: usize = 20;

/// The longest part of a source line that a message repeats, in characters.
const MAX_LINE_CHARS: usize = 160;

/// What kind of problem it is. Codes from W31 on are of files of Envoy's reference service, which the package
/// `tower-ratelimit-server` reads; what is wrong with any file has one code in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProblemCode {
    /// The file's form: its syntax, its size, and values of another kind than belongs there.
    R01,
    /// A field that is not known, is missing, or is of no use here.
    R02,
    /// A name that is taken.
    R03,
    /// A quota.
    R04,
    /// The name of something that there is not.
    R05,
    /// A pattern of a path.
    R06,
    /// A parameter that a path does not have.
    R07,
    /// A time, a zone or a duration.
    R08,
    /// A circle of rules that replace each other.
    R09,
    /// A network, or trust in everybody.
    R10,
    /// The version of the format.
    R11,
    /// A rule that no request reaches.
    W21,
    /// A key or tier that any client can choose.
    W22,
    /// A limit that one client can use up for all.
    W23,
    /// A segment of a path that begins with a colon.
    W26,
    /// A method that is not registered.
    W27,
    /// A cost that no quota of the rule ever admits.
    W28,
    /// A value that means nothing, or something else than it seems to.
    W29,
    /// Two descriptors that are one rule.
    W31,
    /// A field that means nothing where it stands.
    W32,
    /// Several domains in one file.
    W33,
}

impl ProblemCode {
    const fn name(self) -> &'static str {
        match self {
            Self::R01 => "R01",
            Self::R02 => "R02",
            Self::R03 => "R03",
            Self::R04 => "R04",
            Self::R05 => "R05",
            Self::R06 => "R06",
            Self::R07 => "R07",
            Self::R08 => "R08",
            Self::R09 => "R09",
            Self::R10 => "R10",
            Self::R11 => "R11",
            Self::W21 => "W21",
            Self::W22 => "W22",
            Self::W23 => "W23",
            Self::W26 => "W26",
            Self::W27 => "W27",
            Self::W28 => "W28",
            Self::W29 => "W29",
            Self::W31 => "W31",
            Self::W32 => "W32",
            Self::W33 => "W33",
        }
    }
}

/// A file as it was read.
#[derive(Debug)]
pub struct SourceText {
    /// As it was given.
    pub name: String,
    /// All of it.
    pub text: String,
    /// The bytes before each line, once a line is asked for: many places are of one large file.
    lines: OnceLock<Box<[usize]>>,
}

impl SourceText {
    /// The text of a file under its name.
    #[must_use]
    pub const fn new(name: String, text: String) -> Self {
        Self {
            name,
            text,
            lines: OnceLock::new(),
        }
    }

    /// The line of a byte, counted from 1, and the bytes before that line.
    fn line_of(&self, at: usize) -> (usize, usize) {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.match_indices('\n').map(|(end, _)| end + 1);
            std::iter::once(0).chain(ends).collect()
        });
        let line = lines.partition_point(|start| *start <= at);
        (line, lines[line - 1])
    }

    /// The SHA-256 of the text in hexadecimal digits, as `sha256sum` prints it.
    #[must_use]
    pub fn sha256(&self) -> String {
        let digest = Sha256::digest(&self.text);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A piece of a file, in bytes.
#[derive(Debug, Clone)]
pub struct Spot {
    source: Arc<SourceText>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Spot {
    /// The piece between these bytes of a file.
    #[must_use]
    pub fn new(source: &Arc<SourceText>, start: usize, end: usize) -> Self {
        Self {
            source: Arc::clone(source),
            start,
            end,
        }
    }

    /// The line and the column, both counted from 1, the column in characters.
    pub(super) fn line_and_column(&self) -> (usize, usize) {
        let text = &self.source.text;
        let start = floor_boundary(text, self.start);
        let (line, line_start) = self.source.line_of(start);
        (line, text[line_start..start].chars().count() + 1)
    }

    /// `rules.yaml:9`, for messages about something else that stands there.
    #[must_use]
    pub fn short(&self) -> String {
        format!("{}:{}", self.source.name, self.line_and_column().0)
    }

    /// The line's text, and how many of its characters the piece covers.
    fn line_and_width(&self) -> (String, usize) {
        let text = &self.source.text;
        let start = floor_boundary(text, self.start);
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |len| start + len);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let end = floor_boundary(text, self.end).clamp(start, line_end);
        let covered = text[start..end].trim_end().chars().count();
        (line.to_owned(), covered.max(1))
    }
}

/// The first variable, such as `${LIMIT}`, that a text names.
pub(super) fn variable_in(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let named = &rest[start + 2..];
        let letters = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let end = named.find(|c| !letters(c)).unwrap_or(named.len());
        if end > 0 && named[end..].starts_with('}') {
            return Some(&rest[start..start + end + 3]);
        }
        rest = named;
    }
    None
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One fault of a rule file, or one warning.
///
/// `Display` tells the place, the code, the text, and the line with a caret below it:
///
/// ```text
/// rules.yaml:9:5: R02 unknown field "metod" in match; did you mean "method"?
///    9 |     metod: POST
///      |     ^^^^^
/// ```
#[derive(Debug, Clone)]
pub struct Problem {
    code: ProblemCode,
    spot: Option<Spot>,
    message: String,
    suggestion: Option<String>,
}

impl Problem {
    /// A problem of a piece of a file.
    #[doc(hidden)]
    pub fn new(code: ProblemCode, spot: &Spot, message: impl Into<String>) -> Self {
        Self {
            code,
            spot: Some(spot.clone()),
            message: message.into(),
            suggestion: None,
        }
    }

    /// A problem of no place in a file.
    pub(super) fn without_place(code: ProblemCode, message: impl Into<String>) -> Self {
        Self {
            code,
            spot: None,
            message: message.into(),
            suggestion: None,
        }
    }

    /// Whether the piece names a variable of a shell or of a template.
    pub(super) fn names_a_variable(&self) -> bool {
        let spot = self.spot.as_ref();
        let piece = spot.and_then(|spot| spot.source.text.get(spot.start..spot.end));
        piece.is_some_and(|piece| variable_in(piece).is_some())
    }

    /// The problem with a further sentence.
    pub(super) fn remedy(mut self, remedy: &str) -> Self {
        self.message += "; ";
        self.message += remedy;
        self
    }

    pub(super) fn suggest(mut self, suggestion: Option<&str>) -> Self {
        self.suggestion = suggestion.map(str::to_owned);
        self
    }

    /// The code, such as `R02`; warnings have one that begins with `W`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code.name()
    }

    /// Whether the file can be used all the same.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.code >= ProblemCode::W21
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

    /// The word that was probably meant.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        self.suggestion.as_deref()
    }

    /// By file and place.
    pub(super) fn order(&self) -> (Option<&str>, usize, ProblemCode) {
        let start = self.spot.as_ref().map_or(0, |spot| spot.start);
        (self.file(), start, self.code)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Headline(self))?;
        match &self.spot {
            Some(spot) => excerpt(spot, f),
            None => Ok(()),
        }
    }
}

/// The problem without its line of the file.
struct Headline<'p>(&'p Problem);

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problem) = self;
        if let Some(spot) = &problem.spot {
            let (line, column) = spot.line_and_column();
            write!(f, "{}:{line}:{column}: ", spot.source.name)?;
        }
        write!(f, "{} {}", problem.code(), problem.message)?;
        match &problem.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion:?}?"),
            None => Ok(()),
        }
    }
}

/// The source line, and a caret below the piece.
fn excerpt(spot: &Spot, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (number, column) = spot.line_and_column();
    let (line, width) = spot.line_and_width();
    // Of a long line, as JSON may be, the part around the place.
    let skipped = column.saturating_sub(MAX_LINE_CHARS / 2);
    let skipped = if line.chars().count() > MAX_LINE_CHARS {
        skipped
    } else {
        0
    };
    let shown: String = line.chars().skip(skipped).take(MAX_LINE_CHARS).collect();
    // A tab keeps its width where the terminal gives it one; control characters stay out of it.
    let clean = |c: char| {
        if c.is_control() && c != '\t' {
            '\u{fffd}'
        } else {
            c
        }
    };
    let shown: String = shown.chars().map(clean).collect();
    let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
    let indent: String = shown
        .chars()
        .take(column - 1 - skipped)
        .map(blank)
        .collect();
    let room = shown
        .chars()
        .count()
        .saturating_sub(column - 1 - skipped)
        .max(1);
    let carets = "^".repeat(width.min(room));
    write!(f, "\n{number:4} | {shown}\n     | {indent}{carets}")
}

/// Rule files that cannot be used: up to twenty faults, in the order of their places.
///
/// `Display` tells each in a paragraph, see [`Problem`].
#[derive(Debug, Clone)]
pub struct RulesError {
    problems: Vec<Problem>,
    /// The faults beyond those that are told.
    more: usize,
    unreadable: bool,
}

impl RulesError {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| a.order().cmp(&b.order()));
        let more = problems.len().saturating_sub(MAX_FAULTS);
        problems.truncate(MAX_FAULTS);
        Self {
            problems,
            more,
            unreadable: false,
        }
    }

    /// A file or directory that cannot be read.
    #[doc(hidden)]
    #[must_use]
    pub fn unreadable(message: String) -> Self {
        Self {
            problems: vec![Problem::without_place(ProblemCode::R01, message)],
            more: 0,
            unreadable: true,
        }
    }

    /// The faults, at most twenty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How many faults there are beyond those of [`problems`](Self::problems).
    #[must_use]
    pub const fn more(&self) -> usize {
        self.more
    }

    /// The faults as one line, for a log: without the lines of the files that `Display` repeats.
    #[must_use]
    pub fn to_line(&self) -> String {
        let faults = self
            .problems
            .iter()
            .map(|problem| Headline(problem).to_string());
        let mut line = faults
            .collect::<Vec<_>>()
            .join("; ")
            .replace(['\r', '\n'], " ");
        if self.more > 0 {
            line += &format!("; and {} more", self.more);
        }
        line
    }

    /// Whether a file could not be read at all, rather than be understood.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.unreadable
    }
}

impl fmt::Display for RulesError {
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

impl Error for RulesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_lines_and_columns() {
        let text = "a\nbé c\n\n  d";
        let source = Arc::new(SourceText::new("rules".to_owned(), text.to_owned()));
        let place = |start| Spot::new(&source, start, start + 1).line_and_column();
        assert_eq!(place(0), (1, 1));
        // A line's end belongs to it.
        assert_eq!(place(1), (1, 2));
        assert_eq!(place(text.find('b').expect("b")), (2, 1));
        assert_eq!(place(text.find('c').expect("c")), (2, 4));
        assert_eq!(place(text.find('d').expect("d")), (4, 3));
        assert_eq!(place(text.len() + 7), (4, 4));
        // Every place, beside a count of the lines before it.
        for (at, _) in text.char_indices() {
            assert_eq!(place(at).0, text[..at].matches('\n').count() + 1, "{at}");
        }
    }
}
