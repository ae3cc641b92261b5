//! A compiled rule.

use std::{ops::RangeInclusive, time::Duration};

use http::{HeaderName, StatusCode};
use tower_ratelimit_rulefile::{Span, pattern::InDoubt};

use super::{
    cost::CostRule,
    in_flight::InFlightRule,
    key::RuleKey,
    priority::PriorityRule,
    request::RequestPart,
    request_matcher::Matcher,
    rule_quotas::{Allowance, SetChoice},
};
use tower_ratelimit_budgets::llm::{Llm, Pointer};
use tower_ratelimit_core::{headers::Headers, limiter::OnChange};
use tower_ratelimit_layer::{middleware::settings::MissingKey, rate_limit::SpendNumbers};

/// The effect of a rule on requests that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleAction {
    Limit,
    /// Requests are counted, and those that are denied pass with a mark.
    Overflow,
    /// Requests pass uncounted, and the list ends.
    Allow,
    /// The response is 403, and the list ends.
    Deny,
}

#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) name: Box<str>,
    pub(super) position: u16,
    pub(super) action: RuleAction,
    pub(super) matcher: Matcher,
    pub(super) key: RuleKey,
    pub(super) on_missing_key: MissingKey,
    pub(super) on_change: OnChange,
    pub(super) allowance: Allowance,
    pub(super) in_flight: Option<Box<InFlightRule>>,
    pub(super) spend: Option<Box<SpendRule>>,
    pub(super) cost: CostRule,
    pub(super) priority: PriorityRule,
    pub(super) shadow: bool,
    /// Whether it is decided otherwise than most limits: in shadow mode, with overflow, or by responses.
    pub(super) is_apart: bool,
    pub(super) off: bool,
    pub(super) wait: Option<Duration>,
    pub(super) block_for: Option<Duration>,
    pub(super) count_if: Option<CountIf>,
    pub(super) headers: Headers,
    pub(super) stop: bool,
    pub(super) replaces: Box<[u16]>,
    /// The parts of requests that the rule reads, and whether its key is made of the part.
    pub(super) request_parts: Box<[(RequestPart, bool)]>,
    pub(super) span: Span,
    /// A digest of all that decides what the rule does.
    pub(super) digest: u64,
    pub(super) key_digest: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountIf(pub(super) Box<[RangeInclusive<u16>]>);

impl CountIf {
    pub(super) fn counts(&self, status: StatusCode) -> bool {
        self.0.iter().any(|range| range.contains(&status.as_u16()))
    }
}

impl RuleAction {
    pub(super) const fn limits(self) -> bool {
        matches!(self, Self::Limit | Self::Overflow)
    }
}

impl Rule {
    pub(super) fn keep_requests_only(&mut self) -> impl Iterator<Item = &'static str> + use<> {
        let in_flight = self.in_flight.take().map(|_| "in_flight");
        let spend = self.spend.take().map(|_| "spend");
        if spend.is_some() {
            self.allowance.keep_requests_only();
            self.is_apart = self.shadow || self.overflows();
        }
        in_flight.into_iter().chain(spend)
    }

    /// Whether requests that it denies pass with a mark. In shadow mode none has a mark.
    pub(super) fn overflows(&self) -> bool {
        self.action == RuleAction::Overflow && !self.shadow
    }

    /// The result of its match in doubt: an `allow` only exempts requests, so it must be certain.
    pub(super) const fn in_doubt(&self) -> InDoubt {
        match self.action {
            RuleAction::Allow => InDoubt::Differs,
            RuleAction::Limit | RuleAction::Overflow | RuleAction::Deny => InDoubt::Fits,
        }
    }

    /// Whether the list ends for every request that matches. A shadow does not end it, nor does a rule that may be skipped
    /// for a missing key.
    pub(super) fn always_ends_the_list(&self) -> bool {
        let counts = !self.shadow && self.on_missing_key != MissingKey::Skip;
        !self.action.limits() || (self.stop && counts)
    }

    pub(super) fn exempts_from_others(&self) -> bool {
        self.stop || !self.action.limits() || !self.replaces.is_empty()
    }

    /// Whether it counts or matches calls of MCP.
    pub(super) fn needs_call(&self) -> bool {
        self.matcher.needs_call || self.key.names_tool()
    }

    pub(super) fn needs_time(&self) -> bool {
        self.matcher.needs_time() || matches!(self.allowance.choice, SetChoice::Time(_))
    }
}

/// A part of requests, and a rule that reads it. Returned by [`Rules::needs`](super::Rules::needs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleNeed<'r> {
    /// The rule's name.
    pub rule: &'r str,
    /// The part of the request.
    pub part: &'r RequestPart,
    /// Whether the rule's key is made of the part. Otherwise its match, its tier or its cost reads it.
    pub is_key: bool,
}

#[derive(Debug, Clone)]
pub(super) enum UsagePlace {
    Format(Llm),
    /// The bytes of both bodies.
    Bytes,
    Json(Pointer),
    Header(HeaderName),
    Trailer(HeaderName),
}

/// In the extensions of a request whose response a rule charges by a trailer, `spend: {read: {trailer: x-cost}}`.
///
/// A proxy sends the request with `TE: trailers`, without that many servers send none, and hides the trailers from a
/// client that did not send it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NeedsTrailers;

/// The charges of a rule that follow the bodies of responses.
#[derive(Debug, Clone)]
pub(super) struct SpendRule {
    pub(super) read: UsagePlace,
    pub(super) numbers: SpendNumbers,
    /// The most bytes of a request that are read for its reservation.
    pub(super) body: u64,
}
