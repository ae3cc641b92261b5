//! Explanations: why each rule applies to a request, or does not.

use std::time::Duration;

use http::request::Parts;

use super::{
    request::{RequestReading, RequestView},
    rule::Rule,
    rule_quotas::QuotaSet,
    rule_selection::{RulesVerdict, charge, matched},
};
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::Policy,
    error::{KeyError, KeyErrorKind},
    key::Key,
    quota::{OwnedQuota, Priority},
};

/// The outcome of a request, and the reason of each rule. Returned by [`Rules::explain`](super::Rules::explain).
#[derive(Debug, Clone)]
pub struct Explanation {
    rules: Vec<RuleExplanation>,
    outcome: RulesOutcome,
}

/// One rule's reason to apply to a request or not, with its limit if it applies.
#[derive(Debug, Clone)]
pub struct RuleExplanation {
    name: String,
    shadow: bool,
    reason: RuleReason,
    limit: Option<ExplainedLimit>,
}

/// The limit of a rule that applies.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExplainedLimit {
    /// The key, or the reason why the request has none. With the default `on_missing_key` that is the shared key.
    pub key: Result<Key, KeyError>,
    /// The tier of the request, if the rule has several.
    pub tier: Option<String>,
    /// The units that the request takes: 1, or the `cost` of the rule.
    pub cost: u32,
    /// The share of the quotas that the request may use, by the `priority` of the rule.
    pub priority: Priority,
    /// The quotas under the names of their policies. Empty: unlimited.
    pub quotas: Vec<OwnedQuota>,
    /// The limit on requests that run at the same time.
    pub in_flight: Option<Policy>,
    /// The longest time that a denied request may wait; `None` if it is denied at once.
    pub wait: Option<Duration>,
    /// How long a key that used up its quota is denied everything; `None` if only the quota denies.
    pub block_for: Option<Duration>,
    /// Whether a request that the rule denies passes with a mark, by `action: overflow`.
    pub overflows: bool,
}

/// The reason why a rule applies or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleReason {
    /// The rule applies.
    Applies,
    /// This field of its match does not fit, such as `method`, `path` or `header`. The fields before it fit,
    /// in the order in which rules are compared: method and path first, time and `not` last.
    ///
    /// `method's spelling` and `path's spelling` mean that servers read these in several ways, and that only some fit:
    /// enough for a limit, not for an exemption.
    Differs(&'static str),
    /// The rule fits, and this other rule replaces it.
    ReplacedBy(String),
    /// The list ended before the rule, at this other rule.
    AfterEnd(String),
    /// The rule is [switched off](super::RulesHandle::set_enabled).
    SwitchedOff,
    /// The rule fits, and the request is a preflight request of `cors_origins`, which no rule counts.
    Preflight,
}

/// The result of all rules for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesOutcome {
    /// No limit applies: the request passes uncounted.
    Bypassed,
    /// This `allow` applies: the request passes uncounted.
    Allowed(String),
    /// This `deny` applies: the response is 403.
    Denied(String),
    /// The request has no key for this rule: the response has this status.
    Rejected(String, u16),
    /// Limits apply: their rules are charged together.
    Limited,
    /// These rules with the action `overflow` denied the request, and no other did: it passes with a line of the header
    /// field `x-ratelimit-overflow` for each. Returned by [`RulesHandle::check`](super::RulesHandle::check) only, since
    /// an explanation reads no counter.
    Overflowed(Vec<String>),
}

impl Explanation {
    pub(super) fn new(
        rules: &[Rule],
        reading: &RequestReading,
        (parts, now): (&Parts, Timestamp),
        verdict: &RulesVerdict<'_>,
    ) -> Self {
        let view = RequestView::new(parts, now, reading);
        // Every rule is compared, without the index.
        let on = rules.iter().filter(|rule| !rule.off);
        let found = matched(rules, on.map(|rule| rule.position), &view);
        let explained = rules.iter().map(|rule| {
            let after = found.ended_by.filter(|end| *end < rule.position);
            let reason = match (rule.matcher.check(&view, rule.in_doubt()), after) {
                _ if rule.off => RuleReason::SwitchedOff,
                (Ok(()), None) if view.is_preflight && rule.action.limits() => {
                    RuleReason::Preflight
                }
                (_, Some(end)) => RuleReason::AfterEnd(rules[usize::from(end)].name.to_string()),
                (Err(field), None) => RuleReason::Differs(field),
                (Ok(()), None) => match found.replaced_by(rule.position, rules) {
                    Some(other) => RuleReason::ReplacedBy(other.name.to_string()),
                    None => RuleReason::Applies,
                },
            };
            let limits = reason == RuleReason::Applies && rule.action.limits();
            RuleExplanation {
                name: rule.name.to_string(),
                shadow: rule.shadow,
                reason,
                limit: limits.then(|| ExplainedLimit::new(rule, &view)),
            }
        });
        Self {
            rules: explained.collect(),
            outcome: RulesOutcome::of(verdict),
        }
    }

    /// All rules, in their order, also those that do not apply.
    pub fn rules(&self) -> &[RuleExplanation] {
        &self.rules
    }

    /// The names of the rules that apply, in their order.
    pub fn applied(&self) -> impl Iterator<Item = &str> {
        let applied = self.rules.iter().filter(|rule| rule.applies());
        applied.map(|rule| rule.name.as_str())
    }

    /// The result for the request by all rules together. [`Limited`](RulesOutcome::Limited) whether or not
    /// the limits have units left: [`RulesHandle::check`](super::RulesHandle::check) decides that.
    pub const fn outcome(&self) -> &RulesOutcome {
        &self.outcome
    }
}

impl RuleExplanation {
    /// The rule's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the rule applies.
    pub fn applies(&self) -> bool {
        self.reason == RuleReason::Applies
    }

    /// The reason why the rule applies or not.
    pub const fn reason(&self) -> &RuleReason {
        &self.reason
    }

    /// Whether the rule is in the shadow: it counts and never denies.
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The rule's limit, if the rule applies and is one.
    pub const fn limit(&self) -> Option<&ExplainedLimit> {
        self.limit.as_ref()
    }
}

impl ExplainedLimit {
    fn new(rule: &Rule, view: &RequestView<'_>) -> Self {
        let set_index = rule.allowance.index_of(view.parts, view.now);
        let key = match charge(rule, view) {
            Ok(Some(charge)) => Ok(charge.key),
            Ok(None) => rule.key.extract(&rule.matcher, view),
            Err(error) => Err(error),
        };
        Self {
            key,
            tier: rule
                .allowance
                .tiers()
                .map(|tiers| tiers[set_index].to_string()),
            cost: rule.cost.of(view.method(), view.parts),
            priority: rule.priority.of(view.parts),
            quotas: rule.allowance.sets[set_index]
                .as_ref()
                .map_or_else(Vec::new, QuotaSet::to_owned_quotas),
            in_flight: rule.in_flight.as_ref().map(|limit| limit.policy(set_index)),
            wait: rule.wait,
            block_for: rule.block_for,
            overflows: rule.overflows(),
        }
    }
}

impl RulesOutcome {
    pub(super) fn of(verdict: &RulesVerdict<'_>) -> Self {
        let name = |rule: &Rule| rule.name.to_string();
        match verdict {
            RulesVerdict::Bypassed => Self::Bypassed,
            RulesVerdict::Allowed(rule) => Self::Allowed(name(rule)),
            RulesVerdict::Denied(rule) => Self::Denied(name(rule)),
            RulesVerdict::Rejected(rule, error) => {
                let unavailable = error.kind() == KeyErrorKind::Unavailable;
                Self::Rejected(name(rule), if unavailable { 500 } else { 400 })
            }
            RulesVerdict::Limited(_) => Self::Limited,
        }
    }
}
