//! The state of the parser across files.

use std::collections::HashMap;

use tower_ratelimit_rulefile::{ProblemCode, Report, Span};

use crate::lyft::rules::{Builder, Rules};

/// Parses files, one after the other.
pub(super) struct RulesParser<'s> {
    pub(super) settings: &'s Builder,
    /// The current domain.
    pub(super) domain: String,
    pub(super) rules: Rules,
    /// The position of each domain.
    pub(super) places: HashMap<String, Span>,
    pub(super) report: Report,
}

impl RulesParser<'_> {
    pub(super) fn fault(&mut self, code: ProblemCode, span: &Span, message: impl Into<String>) {
        self.report.push(code, span, message);
    }
}
