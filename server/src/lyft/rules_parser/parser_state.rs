//! The state of the parser across files.

use std::collections::HashMap;

use tower_ratelimit_rulefile::{ProblemCode, Report, RulesError, Span};

use crate::lyft::rules::{Builder, Rules};

/// Parses files, one after the other.
pub(super) struct RulesParser<'s> {
    pub(super) settings: &'s Builder,
    /// The current domain.
    pub(super) domain: String,
    pub(super) rules: Rules,
    /// The keys of the path to the current descriptor.
    pub(super) keys: Vec<String>,
    /// By domain and sorted keys: the keys of the first limit with them, in its order, and its place.
    pub(super) orders: HashMap<(String, Vec<String>), (Vec<String>, Span)>,
    /// The position of each domain.
    pub(super) places: HashMap<String, Span>,
    pub(super) report: Report,
}

impl<'s> RulesParser<'s> {
    pub(super) fn new(settings: &'s Builder, report: Report) -> Self {
        Self {
            settings,
            domain: String::new(),
            rules: Rules::default(),
            keys: Vec::new(),
            orders: HashMap::new(),
            places: HashMap::new(),
            report,
        }
    }

    /// The rules, if there is no fault.
    pub(super) fn finish(self) -> Result<Rules, RulesError> {
        let warnings = self.report.finish()?;
        Ok(Rules {
            warnings,
            ..self.rules
        })
    }

    pub(super) fn fault(&mut self, code: ProblemCode, span: &Span, message: impl Into<String>) {
        self.report.push(code, span, message);
    }
}
