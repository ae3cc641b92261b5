//! The error of rule files that cannot be used.

use std::{error::Error, fmt};

use crate::rule_file_problem::{Problem, ProblemCode};

/// The most faults that one error has.
pub(crate) const MAX_FAULTS: usize = 20;

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
