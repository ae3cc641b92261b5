//! All limits of a set of rules, with their names.

use super::{
    rules::{Level, Limit, Rules},
    stats::stats_name,
};

impl Rules {
    /// The limits in the order of their names: the way of keys to each, as statistics have it without values of
    /// requests.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (String, &Limit)> {
        let mut limits = Vec::new();
        for (domain, level) in &self.domains {
            below(domain, level, &mut limits);
        }
        limits.sort_by(|(one, _), (other, _)| one.cmp(other));
        limits.into_iter()
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
