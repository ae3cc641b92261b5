//! The state of a compilation: the report, and the values that hold for all rules.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, Method};
use tower_ratelimit_rulefile::{
    Problem, ProblemCode, Report, Span, document::Node, listed, nearest,
};

use crate::{
    key::RuleKey, request::RequestReading, request_matcher::Authenticator,
    rule_quotas::CountedUnits,
};
use tower_ratelimit_core::{
    key::{extract::KeyExtractor, ip_prefix::IpPrefix},
    quota::text::period,
};

/// The keys and settings that the application registers in code.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) keys: Vec<(String, Arc<dyn KeyExtractor>)>,
    pub(crate) authenticated: Option<Authenticator>,
    /// Whether files may use names that the application does not register.
    pub(crate) outside: bool,
    pub(crate) empty: bool,
    /// Whether the program holds permits, so that files may have `in_flight`.
    pub(crate) holds_permits: bool,
    /// Whether the program follows the bodies of responses, so that files may have `spend`.
    pub(crate) follows_bodies: bool,
    /// Whether limits that responses decide are left out.
    pub(crate) requests_only: bool,
}

pub(crate) struct Context<'c> {
    pub(crate) setup: &'c Setup,
    pub(crate) report: Report,
    /// The templates of `quotas`; `None` for a template with a fault.
    pub(crate) templates: Vec<(&'c str, Option<&'c Node>)>,
    pub(crate) reading: RequestReading,
    pub(crate) prefix: IpPrefix,
    pub(crate) defaults: Option<&'c Node>,
    /// The key of rules without one; `None` if it has a fault.
    pub(crate) default_key: Option<RuleKey>,
    /// The count of money; `None` without prices, or after a fault in them.
    pub(crate) money: Option<CountedUnits>,
    /// The number of quotas so far, each use of a template counted.
    pub(crate) quotas: usize,
}

impl<'c> Context<'c> {
    pub(crate) fn report(&mut self, code: ProblemCode, span: &Span, message: impl Into<String>) {
        self.report.push(code, span, message);
    }

    /// Reports each field of these names that a rule has: it is of no use there.
    pub(crate) fn no_use(
        &mut self,
        rule: &Node,
        names: impl IntoIterator<Item = &'static str>,
        place: &str,
    ) {
        for name in names {
            if let Some(entry) = rule.entry(name) {
                let message = format!("`{name}` is of no use {place}");
                self.report(ProblemCode::R02, &entry.key_span, message);
            }
        }
    }

    pub(crate) fn unknown<'k>(
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

    pub(crate) fn value<T>(
        &mut self,
        code: ProblemCode,
        span: &Span,
        read: Result<T, String>,
    ) -> Option<T> {
        read.map_err(|message| self.report(code, span, message))
            .ok()
    }

    pub(crate) fn header_name(&mut self, name: &str, span: &Span) -> Option<HeaderName> {
        self.value(ProblemCode::R01, span, header_name(name))
    }
}

pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = text.parse();
    name.map_err(|_| format!("{text:?} is no header's name"))
}

/// A duration that is not zero, such as `15m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match period(text) {
        Ok(Duration::ZERO) => {
            Err("a duration of zero has no effect; leave the field out".to_owned())
        }
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(upper.as_bytes()) {
        Ok(Method::HEAD) => Err("HEAD counts as GET: say GET".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{text:?} is no method")),
    }
}
