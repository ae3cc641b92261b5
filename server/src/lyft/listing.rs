//! A list of all limits and their names: the keys of the path to each, without values of requests.

use super::{
    rules::{Found, Level, Limit, Matched, Rules},
    stats::stats_name,
};
use crate::protobuf_messages::Entry;

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

    /// The limit with this name for these entries, and its domain. The name is the limit's own or its domain's.
    pub(crate) fn named(&self, name: &str, entries: &[Entry]) -> Option<(&str, Found<'_>)> {
        self.domains().find_map(|domain| {
            let found = self.find(domain, entries)?;
            let is_meant =
                name == domain || name == stats_name(domain) || name == found.name(domain, entries);
            is_meant.then_some((domain, found))
        })
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
    /// The most units that pass at once; `None` if unlimited.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.unit?;
        let of_window = u64::from(self.requests);
        let quota = self.quota_of_its_own;
        Some(quota.map_or(of_window, |quota| quota.capacity()))
    }

    /// Its position, such as `rules.yaml:9`.
    pub(crate) fn place(&self) -> String {
        self.span.short()
    }
}

impl Found<'_> {
    /// The name of this limit in [`Rules::limits`].
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
