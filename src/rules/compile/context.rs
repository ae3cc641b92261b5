//! What all parts of a compilation share.

use std::sync::Arc;

use http::HeaderName;

use crate::{
    key::{IpPrefix, KeyExtractor},
    rules::{
        key::RuleKey,
        matcher::Authenticator,
        problem::{Problem, ProblemCode, Spot},
        report::{Report, listed, nearest},
        tree::Node,
    },
};

/// What the application registered in code.
#[derive(Clone, Default)]
pub(in crate::rules) struct Setup {
    pub(in crate::rules) keys: Vec<(String, Arc<dyn KeyExtractor>)>,
    pub(in crate::rules) authenticated: Option<Authenticator>,
    /// Whether names that were not registered are accepted.
    pub(in crate::rules) outside: bool,
    /// Whether files may have no rule.
    pub(in crate::rules) empty: bool,
}

/// The compilation's report, and what was said for all rules.
pub(super) struct Context<'c> {
    pub(super) setup: &'c Setup,
    pub(super) report: Report,
    /// The templates of `quotas`; none where one is a fault.
    pub(super) templates: Vec<(&'c str, Option<&'c Node>)>,
    pub(super) client_ip: crate::key::ClientIp,
    pub(super) prefix: IpPrefix,
    pub(super) defaults: Option<&'c Node>,
    /// The key of rules without one; none where that is a fault.
    pub(super) default_key: Option<RuleKey>,
    /// How many quotas were made so far.
    pub(super) quotas_made: usize,
}

impl<'c> Context<'c> {
    pub(super) fn fault(&mut self, code: ProblemCode, spot: &Spot, message: impl Into<String>) {
        self.report.fault(code, spot, message);
    }

    /// A name of something that there is not, and those that there are.
    pub(super) fn unknown<'k>(
        &mut self,
        what: &str,
        name: &str,
        spot: &Spot,
        known: impl Iterator<Item = &'k str> + Clone,
    ) {
        if self.report.is_full() {
            return;
        }
        let suggestion = nearest(name, known.clone());
        let message = format!("unknown {what} {name:?}; there is {}", listed(known));
        self.report
            .add(Problem::new(ProblemCode::R05, spot, message).suggest(suggestion));
    }

    /// A value that `read` makes of a text, unless it is a fault.
    pub(super) fn value<T>(
        &mut self,
        code: ProblemCode,
        node: &Node,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match read(node.text()?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fault(code, &node.spot, message);
                None
            }
        }
    }

    /// The values of a list, or of one item; faults are left out.
    pub(super) fn values<T>(
        &mut self,
        code: ProblemCode,
        node: &'c Node,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let items = node.items().iter();
        items
            .filter_map(|item| self.value(code, item, &read))
            .collect()
    }

    pub(super) fn header_name(&mut self, name: &str, spot: &Spot) -> Option<HeaderName> {
        let found = name.parse();
        if found.is_err() {
            self.fault(
                ProblemCode::R01,
                spot,
                format!("{name:?} is no header's name"),
            );
        }
        found.ok()
    }
}
