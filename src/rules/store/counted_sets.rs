//! The quotas of a rule that count alike, as the settings of a limiter.

use crate::{
    quota::OwnedQuota,
    rules::{rule::Rule, rule_quotas::QuotaSet, spend::CountedUnits},
};

/// The quotas of a rule that count alike: in one limiter, the default tier's first.
pub(super) struct CountedSets<'r> {
    pub(super) rule: &'r Rule,
    pub(super) kind: Option<&'r CountedUnits>,
    /// The indexes of the sets, which name tiers, and the sets. Not empty.
    pub(super) sets: &'r [(usize, QuotaSet)],
}

impl CountedSets<'_> {
    /// The quotas of the default tier.
    pub(super) fn first(&self) -> Vec<OwnedQuota> {
        self.sets[0].1.to_owned_quotas()
    }

    /// The other tiers, with their quotas.
    pub(super) fn tiers(&self) -> impl Iterator<Item = (String, Vec<OwnedQuota>)> {
        let others = self.sets[1..].iter();
        others.map(|(index, set)| (index.to_string(), set.to_owned_quotas()))
    }

    /// The name of the limiter. The part of the units cannot be a part of a rule's name.
    pub(super) fn name(&self, prefix: &str) -> String {
        let name = &self.rule.name;
        match self.kind {
            Some(kind) => format!("{prefix}{name}\n{}", kind.label()),
            None => format!("{prefix}{name}"),
        }
    }
}
