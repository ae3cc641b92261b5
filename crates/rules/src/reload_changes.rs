//! The changes of a reload, rule by rule.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use super::{
    rule::Rule,
    rule_quotas::{Allowance, QuotaSet, RuleQuota, SetChoice},
};
use tower_ratelimit_core::limiter::{OnChange, QuotaChange, tier::numbers};

/// The hint for keys that a changed limit does not free.
const HOW_TO_FREE: &str =
    "`on_change: fresh` in a rule frees its keys when numbers change, a reset frees one key";

const MAX_LINES: usize = 20;

/// The differences between two sets of rules, by the rules' names.
///
/// `Display` writes a line for each kind of change, and one for each of the first twenty changed quotas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleChanges {
    /// Rules of the new set only.
    pub added: Vec<String>,
    /// Rules of the old set only.
    pub removed: Vec<String>,
    /// Rules without a change.
    pub kept: Vec<String>,
    /// Rules with a change that keep their counters. A changed limit does not free a key that has used up the old one:
    /// see [`quotas`](Self::quotas).
    pub changed: Vec<String>,
    /// Rules with a counter that starts anew: another key, algorithm, period, number of slices or refill step, or another
    /// name of a quota; and rules with [`OnChange::Fresh`] whose limit, burst, queue or soft share differs. In Redis all
    /// quotas of a rule start anew when one does, when one is added or removed, and when their order changes; another name
    /// of a quota keeps its counter.
    pub restarted: Vec<String>,
    /// The changed quotas of rules in both sets, with what each gives to a key that had used up the old one. A quota of a
    /// tier has the names of both, `api, gold`.
    pub quotas: Vec<QuotaChange>,
}

impl RuleChanges {
    pub(super) fn between(old: &[Rule], new: &[Rule], identity: CounterIdentity) -> Self {
        let known: HashMap<&str, &Rule> = old.iter().map(|rule| (&*rule.name, rule)).collect();
        let mut changes = Self::default();
        for rule in new {
            let before = known.get(&*rule.name);
            let list = match before {
                None => &mut changes.added,
                Some(before) if before.digest == rule.digest => &mut changes.kept,
                Some(before) if identity.keeps_counters(before, rule) => &mut changes.changed,
                Some(_) => &mut changes.restarted,
            };
            list.push(rule.name.to_string());
            if let Some(before) = before.filter(|before| before.digest != rule.digest) {
                changes.quotas.extend(identity.quotas(before, rule));
            }
        }
        let names: HashSet<&str> = new.iter().map(|rule| &*rule.name).collect();
        let removed = old.iter().filter(|rule| !names.contains(&*rule.name));
        changes.removed = removed.map(|rule| rule.name.to_string()).collect();
        changes
    }
}

impl RuleChanges {
    /// The line for the log about removed rules, if there are any.
    pub(super) fn removal(&self) -> Option<String> {
        let count = self.removed.len();
        let names = self.removed.iter().take(MAX_LINES).map(String::as_str);
        let names = names.collect::<Vec<_>>().join(", ");
        let rules = if count == 1 { "rule" } else { "rules" };
        let more = count.saturating_sub(MAX_LINES);
        match (count, more) {
            (0, _) => None,
            (_, 0) => Some(format!("a reload removed {count} {rules}: {names}")),
            _ => Some(format!(
                "a reload removed {count} {rules}: {names} and {more} more"
            )),
        }
    }
}

/// The identity of counters in a store, which decides whether one survives a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterIdentity {
    /// The store has a counter for each quota, under its name.
    Names,
    /// The store has one value for all quotas of a rule, in their order.
    Positions,
}

impl CounterIdentity {
    /// The counter of a quota at this place of its set.
    fn counter(self, at: usize, quota: &RuleQuota) -> (String, [u64; 4]) {
        let name = match self {
            Self::Names => quota.counter.to_string(),
            Self::Positions => format!("{at} {}", quota.label().unwrap_or_default()),
        };
        (name, quota.quota.quota().shape_numbers())
    }

    fn counters(self, rule: &Rule) -> HashSet<(String, [u64; 4])> {
        let sets = rule.allowance.sets();
        let quotas = sets.iter().flat_map(|set| set.0.iter().enumerate());
        quotas.map(|(at, quota)| self.counter(at, quota)).collect()
    }

    fn keeps_counters(self, before: &Rule, rule: &Rule) -> bool {
        let (old, new) = (self.counters(before), self.counters(rule));
        // A rule without a quota before or after the change has no counter that starts anew.
        old.is_empty() || new.is_empty() || (self.keeps_rule(before, rule) && new.is_subset(&old))
    }

    /// Whether nothing restarts all counters of the rule: neither its key nor `on_change: fresh`, and in a store that counts
    /// by positions no counter.
    fn keeps_rule(self, before: &Rule, rule: &Rule) -> bool {
        let is_fresh = rule.on_change == OnChange::Fresh;
        before.key_digest == rule.key_digest
            && before.on_change == rule.on_change
            && (!is_fresh || self.numbers(before) == self.numbers(rule))
            && (self == Self::Names || self.counters(before) == self.counters(rule))
    }

    /// The numbers of each tier's quotas, with the name or the place of each. The default tier has no index.
    fn numbers(self, rule: &Rule) -> impl PartialEq + use<> {
        let sets = rule.allowance.indexed_sets();
        let default = sets.first().map(|(index, _)| *index);
        let of_set = |(index, set): (usize, &QuotaSet)| {
            let named = |(at, quota): (usize, &RuleQuota)| {
                let (name, _) = self.counter(at, quota);
                (name, numbers(&quota.quota.quota()))
            };
            let mut quotas: Vec<_> = set.0.iter().enumerate().map(named).collect();
            quotas.sort();
            (Some(index).filter(|_| Some(index) != default), quotas)
        };
        sets.into_iter().map(of_set).collect::<Vec<_>>()
    }

    fn quotas(self, before: &Rule, rule: &Rule) -> Vec<QuotaChange> {
        let keeps = self.keeps_rule(before, rule);
        let known = self.counters(before);
        let old = sets(&before.allowance);
        let mut changes = Vec::new();
        for (label, set) in sets(&rule.allowance) {
            let Some((_, old)) = old.iter().find(|(known, _)| *known == label) else {
                continue;
            };
            for (at, quota) in set.0.iter().enumerate() {
                let name = quota.quota.name().unwrap_or_default();
                let mut old = old.0.iter();
                let old = old.find(|old| old.quota.name() == Some(name));
                let (Some(old), after) = (old.map(|old| old.quota.quota()), quota.quota.quota())
                else {
                    continue;
                };
                if old == after {
                    continue;
                }
                let name = if label.is_empty() {
                    name.to_owned()
                } else {
                    format!("{name}, {label}")
                };
                let change = QuotaChange::new(name, old, after, OnChange::Keep);
                let is_kept = keeps && known.contains(&self.counter(at, quota));
                changes.push(if is_kept { change } else { change.afresh() });
            }
        }
        changes
    }
}

/// The sets of quotas of a rule, each under the name of its tier or time in the file. A lone set has none.
fn sets(allowance: &Allowance) -> Vec<(String, &QuotaSet)> {
    let label = |index: usize| match &allowance.choice {
        SetChoice::Tier(_, names) => names[index].to_string(),
        SetChoice::Time(times) if index < times.len() => format!("time {}", index + 1),
        _ => String::new(),
    };
    let sets = allowance.indexed_sets().into_iter();
    sets.map(|(index, set)| (label(index), set)).collect()
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
        let changes = kinds.iter().filter(|(_, names)| !names.is_empty());
        for (at, (kind, names)) in changes.enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{kind}: {}", names.join(", "))?;
        }
        for change in self.quotas.iter().take(MAX_LINES) {
            write!(f, "\n  {change}")?;
        }
        let more = self.quotas.len().saturating_sub(MAX_LINES);
        if more > 0 {
            write!(f, "\n  and {more} more quotas")?;
        }
        if self.quotas.iter().any(|change| !change.starts_afresh) {
            write!(f, "\n  {HOW_TO_FREE}")
        } else {
            Ok(())
        }
    }
}
