//! Explanations of the limit of a descriptor.

use std::fmt;

use tower_ratelimit::Quota;

use super::rules::{Limit, Matched, Rules};
use crate::protobuf_messages::{Entry, RateLimitDescriptor, Unit};

/// The path of a descriptor through the rules. Made by [`Rules::explain`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DescriptorExplanation {
    /// The matches of the entries, up to the first without one.
    pub steps: Vec<EntryMatch>,
    /// The result.
    pub outcome: DescriptorOutcome,
}

/// How an entry matched a descriptor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryMatch {
    /// By its key and value.
    Exact,
    /// By this pattern.
    Pattern(String),
    /// By its key alone.
    KeyAlone,
}

/// The result of a descriptor's look-up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DescriptorOutcome {
    /// No file has the domain.
    UnknownDomain,
    /// No descriptor matches the next entry.
    NoMatch,
    /// The matched descriptor has no limit; a deeper one may have one.
    NoLimit,
    /// Another limit of the request replaces its limit.
    Replaced(String),
    /// It is unlimited.
    Unlimited,
    /// It is limited.
    Limited(Box<ExplainedLimit>),
}

/// The limit of a descriptor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExplainedLimit {
    /// Requests in each period.
    pub requests: u32,
    /// The unit of the period.
    pub unit: Unit,
    /// The number of units in the period.
    pub unit_multiplier: u32,
    /// The quota, if the limit is no fixed window.
    pub quota: Option<Quota>,
    /// Whether it counts and never denies.
    pub shadow: bool,
    /// Whether a request passes as long as one of its quotas has room.
    pub is_quota: bool,
    /// The name in statistics.
    pub stats_name: String,
    /// The keys and values of its counter.
    pub counted: Vec<(String, String)>,
}

impl Rules {
    /// Explains the descriptors of a request, in their order. Nothing is counted.
    pub fn explain(
        &self,
        domain: &str,
        descriptors: &[RateLimitDescriptor],
    ) -> Vec<DescriptorExplanation> {
        let limits = descriptors
            .iter()
            .filter_map(|descriptor| Some(self.find(domain, &descriptor.entries)?.limit));
        let replaced: Vec<&String> = limits.flat_map(|limit| &limit.replaces).collect();
        let explain = |descriptor: &RateLimitDescriptor| DescriptorExplanation {
            steps: self.matches(domain, &descriptor.entries),
            outcome: self.outcome(domain, &descriptor.entries, &replaced),
        };
        descriptors.iter().map(explain).collect()
    }

    fn matches(&self, domain: &str, entries: &[Entry]) -> Vec<EntryMatch> {
        let way = self.way(domain, entries);
        let matches = way.iter().map(|step| match step.matched {
            Matched::Exact => EntryMatch::Exact,
            Matched::Pattern(pattern) => EntryMatch::Pattern(pattern.to_owned()),
            Matched::KeyAlone => EntryMatch::KeyAlone,
        });
        matches.collect()
    }

    fn outcome(&self, domain: &str, entries: &[Entry], replaced: &[&String]) -> DescriptorOutcome {
        if !self.knows(domain) {
            return DescriptorOutcome::UnknownDomain;
        }
        let Some(found) = self.find(domain, entries) else {
            return if self.way(domain, entries).len() == entries.len() {
                DescriptorOutcome::NoLimit
            } else {
                DescriptorOutcome::NoMatch
            };
        };
        let limit = found.limit;
        let Some(unit) = limit.unit else {
            return DescriptorOutcome::Unlimited;
        };
        if replaced.contains(&&limit.name) {
            return DescriptorOutcome::Replaced(limit.name.clone());
        }
        let Limit {
            requests,
            unit_multiplier,
            shadow,
            ..
        } = *limit;
        let counted = found.counted(entries);
        DescriptorOutcome::Limited(Box::new(ExplainedLimit {
            requests,
            unit,
            unit_multiplier: unit_multiplier.unwrap_or(1),
            quota: limit.quota_of_its_own,
            shadow,
            is_quota: limit.quota,
            stats_name: found.stats_name(domain, entries).to_string(),
            counted: counted
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }))
    }
}

/// `5 per minute`, `100 per 2 weeks`, or the text of the quota.
impl fmt::Display for ExplainedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.name().to_ascii_lowercase();
        match (&self.quota, self.unit_multiplier) {
            (Some(quota), _) => write!(f, "{quota}")?,
            (None, 1) => write!(f, "{} per {unit}", self.requests)?,
            (None, times) => write!(f, "{} per {times} {unit}s", self.requests)?,
        }
        let marks = [(self.shadow, ", in shadow"), (self.is_quota, ", a quota")];
        let mut marks = marks.into_iter().filter(|(is_set, _)| *is_set);
        marks.try_for_each(|(_, mark)| f.write_str(mark))
    }
}
