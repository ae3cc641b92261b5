//! The list of problems that a check finds, and the words that were probably meant.

use super::problem::{MAX_FAULTS, Problem, ProblemCode, RulesError, Spot};

/// Faults that are counted but not kept, so that no file makes the list long.
const MAX_KEPT: usize = 10 * MAX_FAULTS;

/// Templating is another tool's: Helm, envsubst.
pub(super) const NO_VARIABLES: &str =
    "variables are not replaced in rule files: write the value, or fill the file in before";

/// The problems found so far.
#[derive(Debug, Default)]
pub struct Report {
    faults: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Report {
    /// Adds a problem of a piece of a file.
    pub fn fault(&mut self, code: ProblemCode, spot: &Spot, message: impl Into<String>) {
        self.add(Problem::new(code, spot, message));
    }

    /// Adds a problem.
    pub fn add(&mut self, mut problem: Problem) {
        let list = if problem.is_warning() {
            &mut self.warnings
        } else {
            &mut self.faults
        };
        if !problem.is_warning() && problem.names_a_variable() {
            problem = problem.remedy(NO_VARIABLES);
        }
        if list.len() < MAX_KEPT {
            list.push(problem);
        }
    }

    /// How many faults there are.
    pub(super) fn faults(&self) -> usize {
        self.faults.len()
    }

    /// Whether further faults would not be kept, so that looking for them is in vain.
    pub(super) fn is_full(&self) -> bool {
        self.faults.len() >= MAX_KEPT
    }

    /// The warnings, if there is no fault.
    ///
    /// # Errors
    ///
    /// The faults.
    pub fn finish(mut self) -> Result<Vec<Problem>, RulesError> {
        if !self.faults.is_empty() {
            return Err(RulesError::new(self.faults));
        }
        self.warnings.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(self.warnings)
    }
}

/// The one of `known` that `word` was probably meant to be.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // Nobody mistypes a word of this length for another, and the distance takes length squared.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_ascii_lowercase().replace('-', "_");
    let distances = known.map(|other| (distance(&lower, &other.to_ascii_lowercase()), other));
    let (distance, other) = distances.min_by_key(|(distance, _)| *distance)?;
    let tolerated = (word.chars().count().max(other.chars().count()) / 3).max(1);
    (distance <= tolerated).then_some(other)
}

/// The number of letters to add, leave out, change or swap with their neighbour.
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

/// Words as a message lists them: `"a", "b" or "c"`; a long list is cut short.
pub(super) fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    let many = words.len().saturating_sub(24);
    words.truncate(24);
    match words.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        all if many > 0 => format!("{} and {many} more", all.join(", ")),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
