//! Why each rule applies to a request, or does not.

use std::time::Duration;

use http::request::Parts;

use super::{
    request::RequestView,
    rule::{Rule, RuleAction},
    select::{RulesVerdict, charge, matched},
};
use crate::{
    clock::Timestamp,
    error::{KeyError, KeyErrorKind},
    key::{ClientIp, Key},
    quota::OwnedQuota,
};

/// What the rules say of a request, rule by rule. Made by [`Rules::explain`](super::Rules::explain).
#[derive(Debug, Clone)]
pub struct Explanation {
    rules: Vec<RuleExplanation>,
    outcome: RulesOutcome,
}

/// What one rule says of a request.
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
    /// The key, or why there is none. One that the request lacks is the shared one, unless the rule
    /// says otherwise.
    pub key: Result<Key, KeyError>,
    /// The tier, where there are several.
    pub tier: Option<String>,
    /// How many units the request takes.
    pub cost: u32,
    /// The quotas under the names of their policies; none is unlimited.
    pub quotas: Vec<OwnedQuota>,
    /// How long a denied request may wait.
    pub wait: Option<Duration>,
    /// How long a key that used up its quota is denied everything.
    pub block_for: Option<Duration>,
}

/// Why a rule applies or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleReason {
    /// It applies.
    Applies,
    /// This field of its match does not fit; those before it do.
    Differs(&'static str),
    /// It fits, and this rule replaces it.
    ReplacedBy(String),
    /// It was not looked at: this rule ended the list.
    AfterEnd(String),
    /// It was not looked at: it is [switched off](super::RulesHandle::set_enabled).
    SwitchedOff,
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesOutcome {
    /// No limit applies: it passes uncounted.
    Bypassed,
    /// This rule lets it pass uncounted.
    Allowed(String),
    /// This rule answers 403.
    Denied(String),
    /// It has no key for this rule, and is answered with this status.
    Rejected(String, u16),
    /// Limits apply: those rules that do are charged together.
    Limited,
}

impl Explanation {
    pub(super) fn new(
        rules: &[Rule],
        client_ip: &ClientIp,
        (parts, now): (&Parts, Timestamp),
        verdict: &RulesVerdict<'_>,
    ) -> Self {
        let view = RequestView::new(parts, now, client_ip);
        // Each rule is asked here, without the index.
        let on = rules.iter().filter(|rule| !rule.off);
        let found = matched(rules, on.map(|rule| rule.place), &view);
        let explained = rules.iter().enumerate().map(|(place, rule)| {
            let place = place as u16;
            let after = found.ended_by.filter(|end| *end < place);
            let reason = match (rule.matcher.check(&view, rule.in_doubt()), after) {
                _ if rule.off => RuleReason::SwitchedOff,
                (_, Some(end)) => RuleReason::AfterEnd(rules[usize::from(end)].name.to_string()),
                (Err(field), None) => RuleReason::Differs(field),
                (Ok(()), None) => match found.replaced_by(place, rules) {
                    Some(other) => RuleReason::ReplacedBy(other.name.to_string()),
                    None => RuleReason::Applies,
                },
            };
            RuleExplanation::new(rule, reason, &view)
        });
        Self {
            rules: explained.collect(),
            outcome: RulesOutcome::of(verdict),
        }
    }

    /// The rules, in their order.
    #[must_use]
    pub fn rules(&self) -> &[RuleExplanation] {
        &self.rules
    }

    /// The names of the rules that apply.
    pub fn applied(&self) -> impl Iterator<Item = &str> {
        let applied = self.rules.iter().filter(|rule| rule.applies());
        applied.map(|rule| rule.name.as_str())
    }

    /// What happens to the request.
    #[must_use]
    pub const fn outcome(&self) -> &RulesOutcome {
        &self.outcome
    }
}

impl RuleExplanation {
    fn new(rule: &Rule, reason: RuleReason, view: &RequestView<'_>) -> Self {
        let limits = reason == RuleReason::Applies && rule.action == RuleAction::Limit;
        Self {
            name: rule.name.to_string(),
            shadow: rule.shadow,
            reason,
            limit: limits.then(|| ExplainedLimit::new(rule, view)),
        }
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it applies.
    #[must_use]
    pub fn applies(&self) -> bool {
        self.reason == RuleReason::Applies
    }

    /// Why it applies or not.
    #[must_use]
    pub const fn reason(&self) -> &RuleReason {
        &self.reason
    }

    /// Whether it counts and denies nothing.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Its limit, where it applies and limits.
    #[must_use]
    pub const fn limit(&self) -> Option<&ExplainedLimit> {
        self.limit.as_ref()
    }
}

impl ExplainedLimit {
    fn new(rule: &Rule, view: &RequestView<'_>) -> Self {
        let chosen = rule.allowance.of(view.parts, view.now);
        let key = match charge(rule, view) {
            Ok(Some(charge)) => Ok(charge.key),
            Ok(None) => rule.key.extract(&rule.matcher, view),
            Err(error) => Err(error),
        };
        Self {
            key,
            tier: chosen.tier.map(str::to_owned),
            cost: rule.cost.of(view.method(), view.parts),
            quotas: chosen
                .quotas
                .map_or_else(Vec::new, |set| set.quotas().cloned().collect()),
            wait: rule.wait,
            block_for: rule.block_for,
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
