//! The report: all problems that reading a file finds.

use crate::{
    rule_file_problem::{Problem, ProblemCode},
    rules_error::{MAX_FAULTS, RulesError},
    source::Span,
};

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
