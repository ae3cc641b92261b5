//! The changes that a reload makes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

#[cfg(feature = "redis")]
use super::allowance::{CounterShape, QuotaSet};
use super::{allowance::CounterId, rule::Rule};

/// What another set of rules changes, by the rules' names.
///
/// `Display` writes a line for each kind of change that there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleChanges {
    /// Rules that there were not.
    pub added: Vec<String>,
    /// Rules that there are no more.
    pub removed: Vec<String>,
    /// Rules that say the same.
    pub kept: Vec<String>,
    /// Rules that say something else, and go on with what was counted.
    pub changed: Vec<String>,
    /// Rules of which a quota counts in another way or by another key, and so begins anew: another
    /// algorithm, period, number of slices or refill step, or another name. In Redis all quotas of a
    /// rule begin anew when one does, when one joins or leaves them, and when they change places,
    /// but not with their names.
    pub restarted: Vec<String>,
}

impl RuleChanges {
    pub(super) fn between(old: &[Rule], new: &[Rule], count_at: CountAt) -> Self {
        let known: HashMap<&str, &Rule> = old.iter().map(|rule| (&*rule.name, rule)).collect();
        let mut changes = Self::default();
        for rule in new {
            let list = match known.get(&*rule.name) {
                None => &mut changes.added,
                Some(before) if before.said == rule.said => &mut changes.kept,
                Some(before) if count_at.goes_on(before, rule) => &mut changes.changed,
                Some(_) => &mut changes.restarted,
            };
            list.push(rule.name.to_string());
        }
        let names: HashSet<&str> = new.iter().map(|rule| &*rule.name).collect();
        let gone = old.iter().filter(|rule| !names.contains(&*rule.name));
        changes.removed = gone.map(|rule| rule.name.to_string()).collect();
        changes
    }
}

/// Where the rules count, which decides what goes on after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountAt {
    /// A counter for each quota, under its name.
    Names,
    /// A value for all quotas of a rule, in their order.
    #[cfg(feature = "redis")]
    Places,
}

impl CountAt {
    /// Whether a rule goes on with what `before` counted.
    fn goes_on(self, before: &Rule, rule: &Rule) -> bool {
        let (old, new) = (counters(before), counters(rule));
        // With no quota before or after there is nothing that begins anew.
        if old.is_empty() || new.is_empty() {
            return true;
        }
        before.key_said == rule.key_said
            && match self {
                Self::Names => new.is_subset(&old),
                #[cfg(feature = "redis")]
                Self::Places => places(before) == places(rule),
            }
    }
}

fn counters(rule: &Rule) -> HashSet<&CounterId> {
    let sets = rule.allowance.sets();
    sets.into_iter().flat_map(|set| set.counters()).collect()
}

#[cfg(feature = "redis")]
fn places(rule: &Rule) -> HashSet<(usize, CounterShape)> {
    let sets = rule.allowance.sets();
    let of_set = |set: &QuotaSet| {
        let shapes = set.counters().map(CounterId::shape);
        shapes.enumerate().collect::<Vec<_>>()
    };
    sets.into_iter().flat_map(of_set).collect()
}

impl fmt::Display for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("restarted", &self.restarted),
            ("kept", &self.kept),
        ];
        let said = kinds.iter().filter(|(_, names)| !names.is_empty());
        for (at, (kind, names)) in said.enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{kind}: {}", names.join(", "))?;
        }
        Ok(())
    }
}
