//! Problems of rule files: their codes, places and texts, with suggestions of known words; the report that collects them, and
//! the error of files that cannot be used.

use std::{error::Error, fmt};

use crate::source_text::Span;

/// The longest part of a source line that a message repeats, in characters.
const MAX_LINE_CHARS: usize = 160;

/// The kind of a problem: R for a fault, W for a warning.
///
/// Codes from W31 on concern files of Envoy's reference service, which the package `tower-ratelimit-envoy` reads. A
/// problem that both kinds of files can have has one code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProblemCode(&'static str);

impl fmt::Debug for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl ProblemCode {
    /// The file's form: its syntax, its size, or a value of the wrong kind.
    pub const R01: Self = Self("R01");
    /// A field that is unknown, missing, or useless at its place.
    pub const R02: Self = Self("R02");
    /// A name that is already in use.
    pub const R03: Self = Self("R03");
    /// A quota.
    pub const R04: Self = Self("R04");
    /// A reference to a name that does not exist.
    pub const R05: Self = Self("R05");
    /// A pattern of a path.
    pub const R06: Self = Self("R06");
    /// A parameter that a path does not have.
    pub const R07: Self = Self("R07");
    /// A time, a zone or a duration.
    pub const R08: Self = Self("R08");
    /// A circle of rules that replace each other.
    pub const R09: Self = Self("R09");
    /// A network, or trust in everybody.
    pub const R10: Self = Self("R10");
    /// The version of the format.
    pub const R11: Self = Self("R11");
    /// A quota that counts the units of responses, in a rule that reads none, or the other way round.
    pub const R12: Self = Self("R12");
    /// A JSON pointer, or the name of a field.
    pub const R13: Self = Self("R13");
    /// A price, a model, or an amount of money without prices.
    pub const R14: Self = Self("R14");
    /// A limit that cannot charge units that were used already.
    pub const R15: Self = Self("R15");
    /// A limit on requests in flight.
    pub const R17: Self = Self("R17");
    /// A rule that no request reaches.
    pub const W21: Self = Self("W21");
    /// A key or tier that any client can choose.
    pub const W22: Self = Self("W22");
    /// A limit that one client can use up for all.
    pub const W23: Self = Self("W23");
    /// A reservation of more than half of what a quota holds.
    pub const W24: Self = Self("W24");
    /// Responses that end with an error when nothing is left.
    pub const W25: Self = Self("W25");
    /// A segment of a path that begins with a colon.
    pub const W26: Self = Self("W26");
    /// A method that is not registered.
    pub const W27: Self = Self("W27");
    /// A cost that no quota of the rule ever admits.
    pub const W28: Self = Self("W28");
    /// A value that has no effect, or another meaning than it seems to have.
    pub const W29: Self = Self("W29");
    /// Two descriptors that are one rule.
    pub const W31: Self = Self("W31");
    /// A field that has no effect at its place.
    pub const W32: Self = Self("W32");
    /// Several domains in one file.
    pub const W33: Self = Self("W33");
    /// Two limits whose descriptors have the same keys in another order.
    pub const W34: Self = Self("W34");
}

/// One fault of a rule file, or one warning.
///
/// `Display` writes the place, the code, the message, and the line with a caret below it:
///
/// ```text
/// rules.yaml:9:5: R02 unknown field "metod" in match; did you mean "method"?
///    9 |     metod: POST
///      |     ^^^^^
/// ```
#[derive(Debug, Clone)]
pub struct Problem {
    code: ProblemCode,
    span: Option<Span>,
    message: String,
    suggestion: Option<String>,
}

impl Problem {
    /// A problem at a place of a file.
    pub fn new(code: ProblemCode, span: &Span, message: impl Into<String>) -> Self {
        Self {
            span: Some(span.clone()),
            ..Self::without_place(code, message)
        }
    }

    /// A problem of all files together.
    pub fn without_place(code: ProblemCode, message: impl Into<String>) -> Self {
        Self {
            code,
            span: None,
            message: message.into(),
            suggestion: None,
        }
    }

    /// The problem with a remedy at the end of its message, after a semicolon.
    #[must_use]
    pub fn remedy(mut self, remedy: &str) -> Self {
        self.message += "; ";
        self.message += remedy;
        self
    }

    /// The problem with the word that was probably meant, if there is one.
    #[must_use]
    pub fn suggest(mut self, suggestion: Option<&str>) -> Self {
        self.suggestion = suggestion.map(str::to_owned);
        self
    }

    /// The code, such as `R02`. Codes of warnings begin with `W`.
    pub fn code(&self) -> &'static str {
        self.code.0
    }

    /// Whether the file can be used in spite of it.
    pub fn is_warning(&self) -> bool {
        self.code >= ProblemCode::W21
    }

    /// The name of the file or the message, as the caller gave it.
    pub fn file(&self) -> Option<&str> {
        self.span.as_ref().map(|span| span.source().name.as_str())
    }

    /// The line, counted from 1; `None` in a message.
    pub fn line(&self) -> Option<usize> {
        let place = self.span.as_ref().and_then(Span::line_and_column);
        place.map(|(line, _)| line)
    }

    /// The column, counted from 1 in characters.
    pub fn column(&self) -> Option<usize> {
        let place = self.span.as_ref().and_then(Span::line_and_column);
        place.map(|(_, column)| column)
    }

    /// The message without place and code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The word that was probably meant.
    pub fn suggestion(&self) -> Option<&str> {
        self.suggestion.as_deref()
    }

    /// Whether the span contains a variable such as `${LIMIT}`.
    fn has_variable(&self) -> bool {
        let text = self.span.as_ref().and_then(Span::text);
        text.is_some_and(|text| variable_in(text).is_some())
    }

    /// The sort key of problems: file, place, code.
    pub(crate) fn order(&self) -> (Option<&str>, usize, ProblemCode) {
        let start = self.span.as_ref().map_or(0, Span::start);
        (self.file(), start, self.code)
    }

    /// The problem on one line, without its line of the file.
    const fn headline(&self) -> Headline<'_> {
        Headline(self)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.headline())?;
        match &self.span {
            Some(span) => write_excerpt(span, f),
            None => Ok(()),
        }
    }
}

/// The first line of a problem's `Display`.
struct Headline<'p>(&'p Problem);

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problem) = self;
        if let Some(span) = &problem.span {
            f.write_str(&span.short())?;
            if let Some((_, column)) = span.line_and_column() {
                write!(f, ":{column}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{} {}", problem.code(), problem.message)?;
        match &problem.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion:?}?"),
            None => Ok(()),
        }
    }
}

/// Writes the span's line, and carets below the span. A message has no lines.
fn write_excerpt(span: &Span, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(((number, column), (line, width))) = span.line_and_column().zip(span.line_and_width())
    else {
        return Ok(());
    };
    // JSON may be one long line: the excerpt is the part around the span.
    let skipped = if line.chars().count() > MAX_LINE_CHARS {
        column.saturating_sub(MAX_LINE_CHARS / 2)
    } else {
        0
    };
    let excerpt = line.chars().skip(skipped).take(MAX_LINE_CHARS);
    let excerpt: String = excerpt.map(printable).collect();
    // A tab stays a tab, so that the caret stands below the span whatever the terminal's width of a tab is.
    let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
    let before = column - 1 - skipped;
    let indent: String = excerpt.chars().take(before).map(blank).collect();
    let room = excerpt.chars().count().saturating_sub(before).max(1);
    let carets = "^".repeat(width.min(room));
    write!(f, "\n{number:4} | {excerpt}\n     | {indent}{carets}")
}

/// Replaces control characters, which a terminal would execute.
fn printable(c: char) -> char {
    if c.is_control() && c != '\t' {
        char::REPLACEMENT_CHARACTER
    } else {
        c
    }
}

/// The first variable of a shell or a template, such as `${LIMIT}`, in a text.
pub(crate) fn variable_in(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let name = &rest[start + 2..];
        let in_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let end = name.find(|c| !in_name(c)).unwrap_or(name.len());
        if end > 0 && name[end..].starts_with('}') {
            return Some(&rest[start..start + end + 3]);
        }
        rest = name;
    }
    None
}

/// The longest word that gets a suggestion. The distance takes time by the square of the length.
const MAX_WORD: usize = 64;

/// The most words that a message lists.
const MAX_LISTED: usize = 24;

/// The one of `known` that `word` probably misspells: at most a third of its letters differ.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_WORD {
        return None;
    }
    let lower = word.to_ascii_lowercase().replace('-', "_");
    let distances = known.map(|other| (distance(&lower, &other.to_ascii_lowercase()), other));
    let (distance, other) = distances.min_by_key(|(distance, _)| *distance)?;
    let tolerated = (word.chars().count().max(other.chars().count()) / 3).max(1);
    (distance <= tolerated).then_some(other)
}

/// The number of letters to add, remove, change or swap with their neighbour (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let change = usize::from(one[i - 1] != other[j - 1]);
            let mut least = (rows[i - 1][j - 1] + change)
                .min(rows[i - 1][j] + 1)
                .min(row[j - 1] + 1);
            let swapped =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if swapped {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Words as a message lists them: `"a", "b" or "c"`. After 24 words the rest is a number.
pub fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    let more = words.len().saturating_sub(MAX_LISTED);
    words.truncate(MAX_LISTED);
    match words.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        all if more > 0 => format!("{} and {more} more", all.join(", ")),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The most faults that one error has.
const MAX_FAULTS: usize = 20;

/// Rule files that cannot be used: up to twenty faults, sorted by their places.
///
/// `Display` writes each in a paragraph, see [`Problem`].
#[derive(Debug, Clone)]
pub struct RulesError {
    problems: Vec<Problem>,
    /// The number of faults beyond `problems`.
    more: usize,
    unreadable: bool,
}

impl RulesError {
    /// The error of these faults. Those beyond the twentieth are only counted.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| a.order().cmp(&b.order()));
        let more = problems.len().saturating_sub(MAX_FAULTS);
        problems.truncate(MAX_FAULTS);
        Self {
            problems,
            more,
            unreadable: false,
        }
    }

    /// The error of a file or directory that cannot be read.
    pub fn unreadable(message: String) -> Self {
        Self {
            problems: vec![Problem::without_place(ProblemCode::R01, message)],
            more: 0,
            unreadable: true,
        }
    }

    /// The faults, at most twenty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The number of faults beyond those of [`problems`](Self::problems).
    pub const fn more(&self) -> usize {
        self.more
    }

    /// The faults on one line, for a log: without the lines of the files that `Display` repeats.
    pub fn to_line(&self) -> String {
        let faults = self.problems.iter();
        let faults: Vec<String> = faults.map(|fault| fault.headline().to_string()).collect();
        let mut line = faults.join("; ").replace(['\r', '\n'], " ");
        if self.more > 0 {
            line += &format!("; and {} more", self.more);
        }
        line
    }

    /// Whether a file could not be read at all, as opposed to a file with faults.
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

/// The most problems of each kind that a report keeps, so that no file makes it long.
const MAX_KEPT: usize = 10 * MAX_FAULTS;

/// The remedy for variables: Helm and envsubst replace them, this package does not.
pub(crate) const NO_VARIABLES: &str =
    "variables are not replaced in rule files: write the value, or fill the file in before";

/// The problems found so far.
#[derive(Debug, Default)]
pub struct Report {
    faults: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Report {
    /// Adds a problem at a place of a file.
    pub fn push(&mut self, code: ProblemCode, span: &Span, message: impl Into<String>) {
        self.add(Problem::new(code, span, message));
    }

    /// Adds a problem. A fault at a variable such as `${LIMIT}` gets the remedy for variables.
    pub fn add(&mut self, mut problem: Problem) {
        let list = if problem.is_warning() {
            &mut self.warnings
        } else {
            &mut self.faults
        };
        if !problem.is_warning() && problem.has_variable() {
            problem = problem.remedy(NO_VARIABLES);
        }
        if list.len() < MAX_KEPT {
            list.push(problem);
        }
    }

    /// The number of faults.
    pub const fn faults(&self) -> usize {
        self.faults.len()
    }

    /// Whether the report drops further faults. A check that can find very many stops here.
    pub const fn is_full(&self) -> bool {
        self.faults.len() >= MAX_KEPT
    }

    /// The warnings, sorted by their places, if there is no fault.
    ///
    /// # Errors
    ///
    /// The faults, if there are any.
    pub fn finish(mut self) -> Result<Vec<Problem>, RulesError> {
        if !self.faults.is_empty() {
            return Err(RulesError::new(self.faults));
        }
        self.warnings.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(self.warnings)
    }
}
