//! The parser: what is known of the files that were read.

use std::collections::HashMap;

use tower_ratelimit::rules::source::{ProblemCode, Report, Spot};

use crate::lyft::rules::{Builder, Rules};

/// Reads files, one after the other.
pub(super) struct RulesParser<'s> {
    pub(super) settings: &'s Builder,
    /// The domain that is being read.
    pub(super) domain: String,
    pub(super) rules: Rules,
    /// Where each domain was said.
    pub(super) places: HashMap<String, Spot>,
    pub(super) report: Report,
}

impl RulesParser<'_> {
    pub(super) fn tell(&mut self, code: ProblemCode, spot: &Spot, message: impl Into<String>) {
        self.report.fault(code, spot, message);
    }
}
