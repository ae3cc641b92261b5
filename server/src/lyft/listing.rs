//! All limits of a set of rules, and their names: the way of keys to each, without values of requests.

use super::{
    rules::{Found, Level, Limit, Matched, Rules},
    stats::stats_name,
};
use crate::messages::Entry;

impl Rules {
    /// The limits in the order of their names.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (String, &Limit)> {
        let mut limits = Vec::new();
        for (domain, level) in &self.domains {
            below(domain, level, &mut limits);
        }
        limits.sort_by(|(one, _), (other, _)| one.cmp(other));
        limits.into_iter()
    }

    /// The domain that a name of a limit, or of a domain, begins with: the longest one.
    pub(crate) fn domain_of(&self, name: &str) -> Option<&str> {
        let is_in = |domain: &&str| {
            let rest = name.strip_prefix(domain);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.domains()
            .filter(is_in)
            .max_by_key(|domain| domain.len())
    }
}

fn below<'r>(path: &str, level: &'r Level, limits: &mut Vec<(String, &'r Limit)>) {
    for (text, descriptor) in &level.descriptors {
        let path = format!("{path}.{text}");
        if let Some(limit) = &descriptor.limit {
            limits.push((stats_name(&path), limit));
        }
        below(&path, &descriptor.below, limits);
    }
}

impl Limit {
    /// The units that pass at once; `None` if any number does.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.unit?;
        let of_window = u64::from(self.requests);
        let quota = self.quota_of_its_own;
        Some(quota.map_or(of_window, |quota| quota.capacity()))
    }

    /// Where it stands, such as `rules.yaml:9`.
    pub(crate) fn place(&self) -> String {
        self.spot.short()
    }
}

impl Found<'_> {
    /// The limit's name among [all](Rules::limits).
    pub(crate) fn name(&self, domain: &str, entries: &[Entry]) -> String {
        let mut path = domain.to_owned();
        for (step, Entry { key, value }) in self.steps.iter().zip(entries) {
            path += ".";
            match step.matched {
                Matched::Pattern(pattern) => path += pattern,
                Matched::KeyAlone => path += key,
                Matched::Exact => {
                    path += key;
                    path += "_";
                    path += value;
                }
            }
        }
        stats_name(&path)
    }
}
