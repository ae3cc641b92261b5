//! A rule, ready to be asked.

use std::{ops::RangeInclusive, time::Duration};

use http::StatusCode;

use super::{allowance::Allowance, cost::CostRule, key::RuleKey, matcher::Matcher, problem::Spot};
use crate::{headers::Headers, middleware::key_rules::MissingKey};

/// What happens to the requests that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleAction {
    Limit,
    /// They pass uncounted, and no further rule is looked at.
    Allow,
    /// They are answered 403.
    Deny,
}

/// A rule of a file.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(super) name: Box<str>,
    pub(super) action: RuleAction,
    pub(super) matcher: Matcher,
    pub(super) key: RuleKey,
    pub(super) on_missing_key: MissingKey,
    pub(super) allowance: Allowance,
    pub(super) cost: CostRule,
    pub(super) shadow: bool,
    pub(super) wait: Option<Duration>,
    pub(super) block_for: Option<Duration>,
    pub(super) count_if: Option<CountIf>,
    pub(super) headers: Headers,
    pub(super) stop: bool,
    /// The places of the rules that it leaves out.
    pub(super) replaces: Box<[u16]>,
    /// Where its name stands.
    pub(super) spot: Spot,
    /// A digest of all that was said of it.
    pub(super) said: u64,
}

/// The responses that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountIf(pub(super) Box<[RangeInclusive<u16>]>);

#[allow(dead_code, reason = "for the layer that charges what the rules say")]
impl CountIf {
    pub(crate) fn counts(&self, status: StatusCode) -> bool {
        self.0.iter().any(|range| range.contains(&status.as_u16()))
    }
}

impl Rule {
    /// Whether no rule after it is looked at.
    pub(super) fn ends_the_list(&self) -> bool {
        self.stop || self.action != RuleAction::Limit
    }
}

/// What a layer needs of a rule that applies.
#[allow(dead_code, reason = "for the layer that charges what the rules say")]
impl Rule {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its denial denies nothing.
    pub(crate) const fn is_shadow(&self) -> bool {
        self.shadow
    }

    pub(crate) const fn on_denial(&self) -> (Option<Duration>, Option<Duration>) {
        (self.wait, self.block_for)
    }

    pub(crate) const fn count_if(&self) -> Option<&CountIf> {
        self.count_if.as_ref()
    }

    pub(crate) const fn headers(&self) -> &Headers {
        &self.headers
    }
}
