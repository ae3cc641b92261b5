//! Explanations of the limit of a descriptor.

use std::fmt;

use tower_ratelimit::Quota;

use super::rules::{Found, Matched, Rules};
use crate::protobuf_messages::{Entry, RateLimitDescriptor, Unit};

/// The path of a descriptor through the rules. Made by [`Rules::explain`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DescriptorExplanation {
    /// How the entries matched, such as `by key and value`, up to the first without a match.
    pub steps: Vec<String>,
    /// The result, such as `passes uncounted: it is unlimited`.
    pub outcome: String,
    /// The limit that counts the descriptor, if one does.
    pub limit: Option<ExplainedLimit>,
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
    /// The entries of its counter, such as `user=eve,path`.
    pub counted: String,
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
        let explain = |descriptor: &RateLimitDescriptor| {
            let steps = self.way(domain, &descriptor.entries).into_iter();
            let steps: Vec<_> = steps.map(|step| step.matched.to_string()).collect();
            let limit = self.limit(domain, &descriptor.entries, steps.len(), &replaced);
            DescriptorExplanation {
                steps,
                outcome: match &limit {
                    Ok(limit) => {
                        let ExplainedLimit {
                            stats_name,
                            counted,
                            ..
                        } = limit;
                        format!("counted by {stats_name}: {limit}, for {counted}")
                    }
                    Err(why) => format!("passes uncounted: {why}"),
                },
                limit: limit.ok(),
            }
        };
        descriptors.iter().map(explain).collect()
    }

    /// The limit of a descriptor of which this many entries matched, or why there is none.
    fn limit(
        &self,
        domain: &str,
        entries: &[Entry],
        steps: usize,
        replaced: &[&String],
    ) -> Result<ExplainedLimit, String> {
        if !self.knows(domain) {
            return Err("no file has the domain".to_owned());
        }
        let Some(found) = self.find(domain, entries) else {
            let why = match steps {
                _ if steps == entries.len() => "its last entry has no rate_limit",
                0 => "nothing matches",
                _ => {
                    "nothing matches all of it, and no other way is tried once an entry has matched"
                }
            };
            return Err(why.to_owned());
        };
        let Found { limit, .. } = found;
        let unit = limit.unit.ok_or("it is unlimited")?;
        if replaced.contains(&&limit.name) {
            return Err(format!(
                "another limit of the request replaces {:?}",
                limit.name
            ));
        }
        let counted = found.counted(entries).map(|(key, value)| {
            let [key, value] = [key, value].map(str::to_owned);
            Entry { key, value }.to_string()
        });
        Ok(ExplainedLimit {
            requests: limit.requests,
            unit,
            unit_multiplier: limit.unit_multiplier.unwrap_or(1),
            quota: limit.quota_of_its_own,
            shadow: limit.shadow,
            is_quota: limit.quota,
            stats_name: found.stats_name(domain, entries).0.to_string(),
            counted: counted.collect::<Vec<_>>().join(","),
        })
    }
}

impl fmt::Display for Matched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("by key and value"),
            Self::Pattern(pattern) => write!(f, "by the pattern {pattern:?}"),
            Self::KeyAlone => f.write_str("by the key alone"),
        }
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
