//! The set of rules: read once, never changed, shared by all that ask it.

use std::sync::Arc;

use http::request::Parts;

use super::{
    changes::RuleChanges,
    compile::{Compiled, StoreSettings},
    explain::Explanation,
    problem::Problem,
    rule::Rule,
    select::{RuleIndex, RulesVerdict, select},
};
use crate::{
    clock::{SharedClock, Timestamp},
    key::ClientIp,
};

/// The rules of one or several files, checked and ready to be asked. Clones share them.
///
/// A set never changes: a reload makes another one, so a request that began under a set ends under
/// it. Made by [`RulesBuilder`](super::RulesBuilder).
///
/// ```
/// use http::Request;
/// use tower_ratelimit::{Timestamp, rules::{Format, Rules}};
///
/// let rules = Rules::builder().parse(
///     r#"
/// rules:
///   - {name: health, match: {path: /healthz}, action: allow}
///   - {name: api, match: {path: "/api/**"}, key: bearer_token, quota: 100/minute}
/// "#,
///     Format::Yaml,
/// )?;
///
/// let (parts, ()) = Request::get("/api//users/").body(())?.into_parts();
/// let explanation = rules.explain(&parts, Timestamp::from_secs(0));
/// assert_eq!(explanation.applied().collect::<Vec<_>>(), ["api"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rules(Arc<RuleSet>);

#[derive(Debug)]
#[allow(dead_code, reason = "for the layer that charges what the rules say")]
struct RuleSet {
    rules: Box<[Rule]>,
    index: RuleIndex,
    client_ip: ClientIp,
    store: StoreSettings,
    clock: SharedClock,
    warnings: Box<[Problem]>,
}

impl Rules {
    pub(super) fn new(compiled: Compiled, clock: SharedClock) -> Self {
        Self(Arc::new(RuleSet {
            index: RuleIndex::new(&compiled.rules),
            rules: compiled.rules.into(),
            client_ip: compiled.client_ip,
            store: compiled.store,
            clock,
            warnings: compiled.warnings.into(),
        }))
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.rules.len()
    }

    /// Whether there is no rule at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.rules.is_empty()
    }

    /// The rules' names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.rules.iter().map(|rule| &*rule.name)
    }

    /// What is allowed and probably not meant.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.0.warnings
    }

    /// Why each rule applies to the request at that time, or does not. Nothing is counted.
    #[must_use]
    pub fn explain(&self, parts: &Parts, now: Timestamp) -> Explanation {
        let set = &*self.0;
        let verdict = self.select(parts, now);
        Explanation::new(&set.rules, &set.client_ip, (parts, now), &verdict)
    }

    /// The changes that a reload from `old` to this set makes.
    #[must_use]
    pub fn changes_since(&self, old: &Self) -> RuleChanges {
        RuleChanges::between(&old.0.rules, &self.0.rules)
    }

    /// What the rules say of a request.
    #[inline]
    pub(crate) fn select(&self, parts: &Parts, now: Timestamp) -> RulesVerdict<'_> {
        let set = &*self.0;
        select(&set.rules, &set.index, &set.client_ip, (parts, now))
    }
}

/// What a layer needs of the set.
#[allow(dead_code, reason = "for the layer that charges what the rules say")]
impl Rules {
    /// The limiter's clock, by which times of the day are told.
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.0.clock
    }

    /// What the files want of the place where counts are kept.
    pub(crate) fn store(&self) -> &StoreSettings {
        &self.0.store
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.0.rules
    }
}
