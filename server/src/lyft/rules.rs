//! Rules: the trees of all domains, and the look-up of a descriptor.

use std::{collections::HashMap, path::PathBuf};

use tower_ratelimit::Quota;
use tower_ratelimit_rulefile::{Problem, Span};

use super::{files::FilesOf, wildcard::Wildcard};
use crate::protobuf_messages::{Entry, Struct, Unit};

/// The rules of all domains.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) domains: HashMap<String, Level>,
    pub(super) limits: usize,
    pub(super) warnings: Vec<Problem>,
    /// The name of each file, and its SHA-256.
    pub(super) files: Vec<(String, String)>,
    /// The files and directories in the rule directories that were not read.
    pub(super) others: Vec<PathBuf>,
}

/// Settings for reading rules. Made by [`Rules::builder`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    pub(super) merge_domains: bool,
    pub(super) strict: bool,
    pub(super) files: FilesOf,
}

/// The descriptors below a domain or a descriptor.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) descriptors: HashMap<String, Descriptor>,
    /// In the order of the file.
    pub(super) wildcards: Vec<Wildcard>,
}

/// A descriptor of a file.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) limit: Option<Limit>,
    pub(super) below: Level,
    pub(super) value_to_metric: bool,
    /// The text with `*` that replaces all values in counts.
    pub(super) shared: Option<String>,
    pub(super) metadata: Option<Struct>,
}

/// A limit of a file.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) requests: u32,
    /// The unit; `None` if unlimited.
    pub(crate) unit: Option<Unit>,
    /// The number of units in a period, if the file has one.
    pub(crate) unit_multiplier: Option<u32>,
    /// The quota, if the limit is no fixed window.
    pub(crate) quota_of_its_own: Option<Quota>,
    pub(crate) name: String,
    pub(crate) replaces: Vec<String>,
    pub(crate) shadow: bool,
    pub(crate) quota: bool,
    pub(super) detailed_metric: bool,
    pub(super) span: Span,
}

/// The limit of a descriptor, and the path to it.
#[derive(Debug)]
pub(crate) struct Found<'r> {
    pub(crate) limit: &'r Limit,
    pub(super) steps: Vec<Step<'r>>,
}

/// An entry, and the descriptor of the file that it matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'r> {
    pub(super) descriptor: &'r Descriptor,
    pub(super) matched: Matched<'r>,
}

/// How an entry matched.
#[derive(Debug, Clone, Copy)]
pub(super) enum Matched<'r> {
    Exact,
    Pattern(&'r str),
    KeyAlone,
}

impl Rules {
    /// The number of limits, unlimited ones included.
    pub const fn len(&self) -> usize {
        self.limits
    }

    /// Whether there is no limit.
    pub const fn is_empty(&self) -> bool {
        self.limits == 0
    }

    /// The problems that do not reject the files.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The files that were read, each with the SHA-256 of its contents in hexadecimal digits.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter();
        files.map(|(name, sha256)| (name.as_str(), sha256.as_str()))
    }

    /// The domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    pub(crate) fn knows(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The limit of a descriptor with these entries, if there is one.
    pub(crate) fn find(&self, domain: &str, entries: &[Entry]) -> Option<Found<'_>> {
        let steps = self.way(domain, entries);
        let last = steps.last().filter(|_| steps.len() == entries.len())?;
        let limit = last.descriptor.limit.as_ref()?;
        Some(Found { limit, steps })
    }

    /// The matches of the entries, up to the first without one.
    pub(super) fn way(&self, domain: &str, entries: &[Entry]) -> Vec<Step<'_>> {
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(entries.len());
        let mut level = self.domains.get(domain);
        for entry in entries {
            let Some(step) = level.and_then(|level| level.step(entry)) else {
                break;
            };
            level = Some(&step.descriptor.below);
            steps.push(step);
        }
        steps
    }
}

impl Level {
    /// The descriptor of this level that an entry matches.
    pub(super) fn step(&self, entry: &Entry) -> Option<Step<'_>> {
        let text = format!("{}_{}", entry.key, entry.value);
        if let Some(descriptor) = self.descriptors.get(&text) {
            let matched = Matched::Exact;
            return Some(Step {
                descriptor,
                matched,
            });
        }
        let pattern = self.wildcards.iter().find(|pattern| pattern.covers(&text));
        if let Some(pattern) = pattern.map(Wildcard::pattern) {
            let matched = Matched::Pattern(pattern);
            let descriptor = self.descriptors.get(pattern)?;
            return Some(Step {
                descriptor,
                matched,
            });
        }
        let descriptor = self.descriptors.get(&entry.key)?;
        let matched = Matched::KeyAlone;
        Some(Step {
            descriptor,
            matched,
        })
    }
}

impl<'r> Step<'r> {
    /// The pattern that replaces the value, if all values share a count.
    pub(super) fn shared(&self, entry: &Entry) -> Option<&'r str> {
        let Matched::Pattern(_) = self.matched else {
            return None;
        };
        let shared = self.descriptor.shared.as_deref()?;
        Some(value_of(shared, entry))
    }
}

/// The pattern without the key of the entry, if it begins with the key.
pub(super) fn value_of<'p>(pattern: &'p str, entry: &Entry) -> &'p str {
    let value = pattern.strip_prefix(&entry.key);
    value
        .and_then(|value| value.strip_prefix('_'))
        .unwrap_or(pattern)
}

impl<'r> Found<'r> {
    /// The values of the counter.
    pub(crate) fn counted<'s>(
        &'s self,
        entries: &'s [Entry],
    ) -> impl Iterator<Item = (&'s str, &'s str)> {
        let steps = self.steps.iter().zip(entries);
        steps.map(|(step, entry)| {
            let value = step.shared(entry).unwrap_or(&entry.value);
            (entry.key.as_str(), value)
        })
    }

    pub(crate) fn metadata(&self) -> Option<&'r Struct> {
        self.steps.last()?.descriptor.metadata.as_ref()
    }
}
