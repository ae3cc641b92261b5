//! The changes that a reload makes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

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
    /// Rules of which a quota counts in another way, and so begins anew: another algorithm, period,
    /// number of slices or refill step, or another name.
    pub restarted: Vec<String>,
}

impl RuleChanges {
    pub(super) fn between(old: &[Rule], new: &[Rule]) -> Self {
        let known: HashMap<&str, &Rule> = old.iter().map(|rule| (&*rule.name, rule)).collect();
        let mut changes = Self::default();
        for rule in new {
            let list = match known.get(&*rule.name) {
                None => &mut changes.added,
                Some(before) if before.said == rule.said => &mut changes.kept,
                Some(before) if counters(rule).is_subset(&counters(before)) => &mut changes.changed,
                // With no quota before there is nothing that begins anew.
                Some(before) if counters(before).is_empty() => &mut changes.changed,
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

fn counters(rule: &Rule) -> HashSet<&CounterId> {
    let sets = rule.allowance.sets();
    sets.into_iter().flat_map(|set| set.counters()).collect()
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
