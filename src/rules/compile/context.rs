//! The state of a compilation: the report, and the values that hold for all rules.

use std::sync::Arc;

use http::HeaderName;
use tower_ratelimit_rulefile::{
    Problem, ProblemCode, Report, Span, document::Node, listed, nearest,
};

use crate::rules::{
    cors::CorsOrigins, fields::text_values, key::RuleKey, matcher::Authenticator,
    spend::CountedUnits,
};
use tower_ratelimit_core::key::{IpPrefix, KeyExtractor};

/// The keys and settings that the application registers in code.
#[derive(Clone, Default)]
pub(in crate::rules) struct Setup {
    pub(in crate::rules) keys: Vec<(String, Arc<dyn KeyExtractor>)>,
    pub(in crate::rules) authenticated: Option<Authenticator>,
    /// Whether files may use names that the application does not register.
    pub(in crate::rules) outside: bool,
    pub(in crate::rules) empty: bool,
    /// Whether the program holds permits, so that files may have `in_flight`.
    pub(in crate::rules) holds_permits: bool,
    /// Whether the program follows the bodies of responses, so that files may have `spend`.
    pub(in crate::rules) follows_bodies: bool,
    /// Whether limits that responses decide are left out.
    pub(in crate::rules) requests_only: bool,
}

pub(in crate::rules) struct Context<'c> {
    pub(in crate::rules) setup: &'c Setup,
    pub(in crate::rules) report: Report,
    /// The templates of `quotas`; `None` for a template with a fault.
    pub(in crate::rules) templates: Vec<(&'c str, Option<&'c Node>)>,
    pub(in crate::rules) client_ip: crate::key::ClientIp,
    pub(in crate::rules) cors_origins: CorsOrigins,
    pub(in crate::rules) prefix: IpPrefix,
    pub(in crate::rules) defaults: Option<&'c Node>,
    /// The key of rules without one; `None` if it has a fault.
    pub(in crate::rules) default_key: Option<RuleKey>,
    /// The count of money; `None` without prices, or after a fault in them.
    pub(in crate::rules) money: Option<CountedUnits>,
    /// The number of quotas so far, each use of a template counted.
    pub(in crate::rules) quotas: usize,
}

impl<'c> Context<'c> {
    pub(in crate::rules) fn report(
        &mut self,
        code: ProblemCode,
        span: &Span,
        message: impl Into<String>,
    ) {
        self.report.push(code, span, message);
    }

    pub(in crate::rules) fn unknown<'k>(
        &mut self,
        what: &str,
        name: &str,
        span: &Span,
        known: impl Iterator<Item = &'k str> + Clone,
    ) {
        if self.report.is_full() {
            return;
        }
        let suggestion = nearest(name, known.clone());
        let message = format!("unknown {what} {name:?}; there is {}", listed(known));
        self.report
            .add(Problem::new(ProblemCode::R05, span, message).suggest(suggestion));
    }

    pub(in crate::rules) fn value<T>(
        &mut self,
        code: ProblemCode,
        span: &Span,
        read: Result<T, String>,
    ) -> Option<T> {
        read.map_err(|message| self.report(code, span, message))
            .ok()
    }

    pub(in crate::rules) fn header_name(&mut self, name: &str, span: &Span) -> Option<HeaderName> {
        self.value(ProblemCode::R01, span, text_values::header_name(name))
    }
}
