//! A rule, ready to be asked.

use std::{ops::RangeInclusive, time::Duration};

use http::StatusCode;

use super::{
    allowance::Allowance, cost::CostRule, key::RuleKey, matcher::Matcher, need::RequestPart,
    pattern::InDoubt, problem::Spot,
};
use crate::{headers::Headers, limiter::OnChange, middleware::key_rules::MissingKey};

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
    /// Its place among all rules.
    pub(super) place: u16,
    pub(super) action: RuleAction,
    pub(super) matcher: Matcher,
    pub(super) key: RuleKey,
    pub(super) on_missing_key: MissingKey,
    pub(super) on_change: OnChange,
    pub(super) allowance: Allowance,
    pub(super) cost: CostRule,
    pub(super) shadow: bool,
    /// Whether it is left out until somebody says otherwise.
    pub(super) off: bool,
    pub(super) wait: Option<Duration>,
    pub(super) block_for: Option<Duration>,
    pub(super) count_if: Option<CountIf>,
    pub(super) headers: Headers,
    pub(super) stop: bool,
    /// The places of the rules that it leaves out.
    pub(super) replaces: Box<[u16]>,
    /// What it looks at, and whether its key is made of that.
    pub(super) needs: Box<[(RequestPart, bool)]>,
    /// Where its name stands.
    pub(super) spot: Spot,
    /// A digest of all that was said of it.
    pub(super) said: u64,
    /// A digest of what was said of its key.
    pub(super) key_said: u64,
}

/// The responses that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountIf(pub(super) Box<[RangeInclusive<u16>]>);

impl CountIf {
    pub(super) fn counts(&self, status: StatusCode) -> bool {
        self.0.iter().any(|range| range.contains(&status.as_u16()))
    }
}

impl Rule {
    /// The side on which its match errs: all that an `allow` does is to spare.
    pub(super) const fn in_doubt(&self) -> InDoubt {
        match self.action {
            RuleAction::Allow => InDoubt::Differs,
            RuleAction::Limit | RuleAction::Deny => InDoubt::Fits,
        }
    }

    /// Whether no rule after it is looked at.
    pub(super) fn ends_the_list(&self) -> bool {
        self.stop || self.action != RuleAction::Limit
    }

    /// Whether it ends the list for every request that it matches: one that only watches does not,
    /// nor does one that is left out for want of a key.
    pub(super) fn always_ends_the_list(&self) -> bool {
        let counts = !self.shadow && self.on_missing_key != MissingKey::Skip;
        self.action != RuleAction::Limit || (self.stop && counts)
    }

    /// Whether other rules do not apply for its sake.
    pub(super) fn spares_others(&self) -> bool {
        self.ends_the_list() || !self.replaces.is_empty()
    }

    /// Whether it says anything of the time.
    pub(super) fn asks_the_time(&self) -> bool {
        self.matcher.asks_the_time() || matches!(self.allowance, Allowance::Scheduled { .. })
    }
}
