//! The changes that a reload makes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

#[cfg(feature = "redis")]
use super::allowance::CounterShape;
use super::{
    allowance::{Allowance, CounterId, QuotaSet, RuleQuota},
    rule::Rule,
};
use crate::limiter::{OnChange, QuotaChange, on_change};

/// The remedy for keys that a changed limit does not free.
const HOW_TO_FREE: &str =
    "`on_change: fresh` in a rule frees its keys when numbers change, a reset frees one key";

/// The most quotas that a report has a line for.
const MAX_LINES: usize = 20;

/// What another set of rules changes, by the rules' names.
///
/// `Display` writes a line for each kind of change that there is, and one for each of the first
/// twenty changed quotas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleChanges {
    /// Rules that there were not.
    pub added: Vec<String>,
    /// Rules that there are no more.
    pub removed: Vec<String>,
    /// Rules that say the same.
    pub kept: Vec<String>,
    /// Rules that say something else, and keep their counters. A changed limit does not free a key
    /// that has used up the old one: see [`quotas`](Self::quotas).
    pub changed: Vec<String>,
    /// Rules of which a quota counts in another way or by another key, and so begins anew: another
    /// algorithm, period, number of slices or refill step, or another name; and rules with
    /// [`OnChange::Fresh`] of which a limit, burst, queue or soft share differs. In Redis all quotas
    /// of a rule begin anew when one does, when one joins or leaves them, and when they change
    /// places, but not with their names.
    pub restarted: Vec<String>,
    /// The quotas that differ of rules that there were before: what each gives to a key that had
    /// used up the old one. A quota of a tier is named after both, `api, gold`.
    pub quotas: Vec<QuotaChange>,
}

impl RuleChanges {
    pub(super) fn between(old: &[Rule], new: &[Rule], count_at: CountAt) -> Self {
        let known: HashMap<&str, &Rule> = old.iter().map(|rule| (&*rule.name, rule)).collect();
        let mut changes = Self::default();
        for rule in new {
            let before = known.get(&*rule.name);
            let list = match before {
                None => &mut changes.added,
                Some(before) if before.said == rule.said => &mut changes.kept,
                Some(before) if count_at.goes_on(before, rule) => &mut changes.changed,
                Some(_) => &mut changes.restarted,
            };
            list.push(rule.name.to_string());
            if let Some(before) = before.filter(|before| before.said != rule.said) {
                changes.quotas.extend(count_at.quotas(before, rule));
            }
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
        self.keeps_all(before, rule)
            && match self {
                Self::Names => new.is_subset(&old),
                #[cfg(feature = "redis")]
                Self::Places => places(before) == places(rule),
            }
    }

    /// Whether no counter begins anew for a reason that all of the rule have in common.
    fn keeps_all(self, before: &Rule, rule: &Rule) -> bool {
        let is_fresh = rule.on_change == OnChange::Fresh;
        before.key_said == rule.key_said
            && before.on_change == rule.on_change
            && (!is_fresh || self.numbers(before) == self.numbers(rule))
    }

    /// The numbers of each tier's quotas.
    fn numbers(self, rule: &Rule) -> Vec<TierNumbers> {
        let of_set = |(label, set): (String, &QuotaSet)| {
            let numbers = |quota: &RuleQuota| on_change::numbers(&quota.quota.quota());
            let mut quotas: Vec<_> = match self {
                Self::Names => {
                    let named =
                        |quota: &RuleQuota| (quota.counter.quota().to_owned(), numbers(quota));
                    set.0.iter().map(named).collect()
                }
                #[cfg(feature = "redis")]
                Self::Places => {
                    let quotas = set.0.iter().enumerate();
                    let placed = quotas.map(|(at, quota)| (at.to_string(), numbers(quota)));
                    placed.collect()
                }
            };
            quotas.sort();
            (label, quotas)
        };
        sets(&rule.allowance, SetLabel::Place)
            .into_iter()
            .map(of_set)
            .collect()
    }

    /// The quotas of a rule that differ from what they were.
    fn quotas(self, before: &Rule, rule: &Rule) -> Vec<QuotaChange> {
        let keeps = self.keeps_all(before, rule)
            && match self {
                Self::Names => true,
                #[cfg(feature = "redis")]
                Self::Places => places(before) == places(rule),
            };
        let known = counters(before);
        let old = sets(&before.allowance, SetLabel::Name);
        let mut changes = Vec::new();
        for (label, set) in sets(&rule.allowance, SetLabel::Name) {
            let Some((_, old)) = old.iter().find(|(known, _)| *known == label) else {
                continue;
            };
            for quota in &set.0 {
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
                let name = match label.is_empty() {
                    true => name.to_owned(),
                    false => format!("{name}, {label}"),
                };
                let change = QuotaChange::new(name, old, after, OnChange::Keep);
                let is_kept = keeps && known.contains(&quota.counter);
                changes.push(if is_kept { change } else { change.afresh() });
            }
        }
        changes
    }
}

/// A tier, and the name or place and the numbers of each of its quotas.
type TierNumbers = (String, Vec<(String, (u64, u64, u32))>);

/// What sets of quotas are told apart by.
#[derive(Clone, Copy, PartialEq)]
enum SetLabel {
    /// The name of the tier in the rule's limiter.
    Place,
    /// The name of the tier in the file.
    Name,
}

/// The sets of quotas of a rule, each under its label; that of a lone one is empty.
fn sets(allowance: &Allowance, label: SetLabel) -> Vec<(String, &QuotaSet)> {
    let first = allowance.first_place();
    let labelled = |(place, set): (usize, _)| {
        let label = match (label, allowance) {
            (SetLabel::Place, _) if place == first => String::new(),
            (_, Allowance::Always(_)) => String::new(),
            (SetLabel::Name, Allowance::Tiers { tiers, .. }) => tiers[place].0.to_string(),
            (SetLabel::Name, Allowance::Scheduled { times, .. }) if place == times.len() => {
                String::new()
            }
            (SetLabel::Name, Allowance::Scheduled { .. }) => format!("time {}", place + 1),
            (SetLabel::Place, _) => place.to_string(),
        };
        (label, set)
    };
    allowance.places().into_iter().map(labelled).collect()
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
        for change in self.quotas.iter().take(MAX_LINES) {
            write!(f, "\n  {change}")?;
        }
        let more = self.quotas.len().saturating_sub(MAX_LINES);
        if more > 0 {
            write!(f, "\n  and {more} more quotas")?;
        }
        match self.quotas.iter().any(|change| !change.starts_afresh) {
            true => write!(f, "\n  {HOW_TO_FREE}"),
            false => Ok(()),
        }
    }
}
