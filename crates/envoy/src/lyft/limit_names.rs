//! Names of limits: in statistics, as in the reference, and in lists for operators.

use std::fmt;

use super::rules::{Found, Level, Limit, Matched, Rules, Step, value_of};
use crate::protobuf_messages::{Entry, RateLimitDescriptor};

/// The name of a limit in statistics: the domain and the path of keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatsName {
    pub(crate) domain: String,
    /// One for each entry.
    keys: Vec<String>,
}

/// A name, and whether it contains values of requests, so that the number of names is unbounded. A limit that comes with
/// its descriptor has some, and may share the name of one in the files.
pub(crate) type NameAndValues = (StatsName, bool);

impl StatsName {
    fn new(domain: &str, keys: impl Iterator<Item = String>) -> Self {
        Self {
            domain: stats_name(domain),
            keys: keys.map(|key| stats_name(&key)).collect(),
        }
    }

    /// The name of a limit that came with its descriptor.
    pub(crate) fn of_override(domain: &str, descriptor: &RateLimitDescriptor) -> NameAndValues {
        let keys = descriptor
            .entries
            .iter()
            .map(|Entry { key, value }| match value.as_str() {
                "" => key.clone(),
                value => format!("{key}_{value}"),
            });
        (Self::new(domain, keys), true)
    }

    /// The common name for all others of the domain.
    pub(crate) fn other(&self) -> Self {
        Self {
            domain: self.domain.clone(),
            keys: vec!["other".to_owned()],
        }
    }

    /// The bytes of the text.
    pub(crate) fn len(&self) -> usize {
        let keys = self.keys.iter().map(|key| 1 + key.len());
        self.domain.len() + keys.sum::<usize>()
    }

    /// The labels of metrics: the domain, the first and the second key, and deeper ones joined by dots. Different
    /// names can have the same labels.
    pub fn labels(&self) -> [(&'static str, String); 4] {
        let key = |at| self.keys.get(at).cloned().unwrap_or_default();
        let deeper = self.keys.get(2..).unwrap_or_default();
        [
            ("domain", self.domain.clone()),
            ("key1", key(0)),
            ("key2", key(1)),
            ("key3", deeper.join(".")),
        ]
    }
}

impl fmt::Display for StatsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain)?;
        self.keys.iter().try_for_each(|key| write!(f, ".{key}"))
    }
}

impl Rules {
    /// The name in statistics of the limit of a descriptor; `None` if it has no limit.
    pub fn stats_name(&self, domain: &str, descriptor: &RateLimitDescriptor) -> Option<String> {
        if !self.knows(domain) {
            return None;
        }
        if descriptor.limit.is_some() {
            return Some(StatsName::of_override(domain, descriptor).0.to_string());
        }
        let found = self.find(domain, &descriptor.entries)?;
        let (name, _) = found.stats_name(domain, &descriptor.entries);
        Some(name.to_string())
    }
}

impl Found<'_> {
    /// The name of the limit in statistics: the path of the file's keys, with the values of the request that
    /// the file enables.
    pub(crate) fn stats_name(&self, domain: &str, entries: &[Entry]) -> NameAndValues {
        let steps = || self.steps.iter().zip(entries);
        let detailed = self.limit.detailed_metric;
        let shares = steps().any(|(step, entry)| step.shared(entry).is_some());
        let keys = steps().map(|(step, entry)| {
            let Entry { key, value } = entry;
            let value = match step.shared(entry) {
                Some(pattern) => Some(pattern),
                // An empty value is visible unless values share a count.
                None if detailed => {
                    Some(value.as_str()).filter(|value| !shares || !value.is_empty())
                }
                None => step.shown_value(entry).filter(|value| !value.is_empty()),
            };
            value.map_or_else(|| key.clone(), |value| format!("{key}_{value}"))
        });
        let has_values = detailed || steps().any(|(step, entry)| step.has_values(entry));
        (StatsName::new(domain, keys), has_values)
    }
}

impl Step<'_> {
    /// The value in the name of a limit without a detailed metric.
    fn shown_value<'e>(&'e self, entry: &'e Entry) -> Option<&'e str> {
        match self.matched {
            Matched::Exact => Some(&entry.value),
            _ if self.descriptor.value_to_metric => Some(&entry.value),
            Matched::Pattern(pattern) => Some(value_of(pattern, entry)),
            Matched::KeyAlone => None,
        }
    }

    fn has_values(&self, entry: &Entry) -> bool {
        match self.matched {
            Matched::Exact => false,
            // A key that matches a pattern is chosen by the caller.
            Matched::Pattern(pattern) => {
                self.descriptor.value_to_metric || value_of(pattern, entry) == pattern
            }
            Matched::KeyAlone => self.descriptor.value_to_metric,
        }
    }
}

/// A name, such as a domain's, in the characters of statistics: without `:` and `|`, and without the dots of IPv4
/// addresses.
pub(crate) fn stats_name(path: &str) -> String {
    let text = path.replace([':', '|'], "_");
    let bytes = text.as_bytes();
    let mut name = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some(length) = address(&bytes[at..]) {
            name += &text[at..at + length].replace('.', "_");
            at += length;
        } else {
            let next = text[at..].chars().next().unwrap_or_default();
            name.push(next);
            at += next.len_utf8();
        }
    }
    name
}

/// The length of an IPv4 address at the start of the text, if there is one.
fn address(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for part in 0..4 {
        if part > 0 {
            if text.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
        let rest = text.get(at..)?;
        let digits = rest
            .iter()
            .take(3)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 {
            return None;
        }
        at += digits;
    }
    Some(at)
}

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
