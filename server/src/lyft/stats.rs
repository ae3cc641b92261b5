//! Names of limits in statistics, as the reference has them.

use super::rules::{Found, Limit, Matched, Step, value_of};
use crate::messages::{Entry, RateLimitDescriptor};

impl Found<'_> {
    /// The name of the limit in statistics, before [`stats_name`]: the path of the file's keys, with the values of
    /// the request where the file asks for them.
    pub(super) fn path(&self, domain: &str, entries: &[Entry]) -> String {
        let steps = self.steps.iter().zip(entries);
        let Limit {
            detailed_metric, ..
        } = self.limit;
        let mut path = domain.to_owned();
        let shares = steps
            .clone()
            .any(|(step, entry)| step.shared(entry).is_some());
        for (step, entry) in steps {
            let Entry { key, value } = entry;
            let value = match step.shared(entry) {
                Some(pattern) => Some(pattern),
                // Only where nothing is shared an empty value leaves its mark.
                None if *detailed_metric => {
                    Some(value.as_str()).filter(|value| !shares || !value.is_empty())
                }
                None => step.told(entry).filter(|value| !value.is_empty()),
            };
            path += ".";
            path += key;
            if let Some(value) = value {
                path += "_";
                path += value;
            }
        }
        path
    }
}

impl Step<'_> {
    /// The value in the name of a limit without a detailed metric.
    fn told<'e>(&'e self, entry: &'e Entry) -> Option<&'e str> {
        match self.matched {
            Matched::Exact => Some(&entry.value),
            _ if self.descriptor.value_to_metric => Some(&entry.value),
            Matched::Pattern(pattern) => Some(value_of(pattern, entry)),
            Matched::KeyAlone => None,
        }
    }
}

/// The name of a limit that came with its descriptor.
pub(super) fn path_of_override(domain: &str, descriptor: &RateLimitDescriptor) -> String {
    let entries = descriptor
        .entries
        .iter()
        .map(|Entry { key, value }| match value.as_str() {
            "" => key.clone(),
            value => format!("{key}_{value}"),
        });
    format!("{domain}.{}", entries.collect::<Vec<_>>().join("."))
}

/// A name as statistics can carry it: without `:` and `|`, and without the dots of IPv4 addresses.
pub(super) fn stats_name(path: &str) -> String {
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

/// The length of four numbers of one to three digits, with dots between them, if the text begins with such.
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
