//! The limit of a quota's bucket: that of `ShouldRateLimit` for the same entries.

use std::{collections::BTreeMap, sync::Arc};

use tower_ratelimit::Key;

use super::{
    RateLimits,
    lookup::{Lookup, look_up},
};
use crate::{
    limiters_by_period::Measure,
    lyft::{Rules, StatsName, TooManyOrders},
    protobuf_messages::{Entry, RateLimitDescriptor, RateLimitRequest},
};

/// The limit of a bucket.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each report"
)]
pub(crate) enum BucketLimit {
    /// No limit, or an unlimited one.
    Nothing,
    Limited(LimitOfBucket),
    /// A limit that counts and denies nothing.
    Shadow(LimitOfBucket),
    /// The id fits the rules in too many orders.
    Ambiguous,
}

/// A counter: a key, and how it counts.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyCounter {
    pub(crate) key: Key,
    pub(crate) measure: Measure,
}

/// A limit and its counter, which many parts of the quota service keep.
#[derive(Debug, Clone)]
pub(crate) struct CountedLimit {
    pub(crate) counter: Arc<KeyCounter>,
    pub(crate) requests: u32,
}

/// A limit, and its name in statistics.
#[derive(Debug, Clone)]
pub(crate) struct LimitOfBucket {
    pub(crate) counted: CountedLimit,
    pub(super) stats: StatsName,
    /// Whether the rule, and not the service, is in shadow mode.
    pub(super) is_shadow: bool,
}

impl RateLimits {
    /// The limit of a bucket with these pairs; `None` without rules.
    pub(crate) fn bucket_limit(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Option<BucketLimit> {
        let rules = self.rules()?;
        Some(match rules.in_order(domain, pairs) {
            Ok(Some(entries)) => self.limit_of(&rules, domain, entries),
            Ok(None) => BucketLimit::Nothing,
            Err(TooManyOrders) => BucketLimit::Ambiguous,
        })
    }

    fn limit_of(&self, rules: &Rules, domain: &str, entries: Vec<Entry>) -> BucketLimit {
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries,
                ..RateLimitDescriptor::default()
            }],
            hits_addend: 0,
        };
        // A descriptor without a limit of its own is never invalid.
        let lookups = look_up(rules, &self.overrides(), &request).unwrap_or_default();
        let Some(Lookup::Limited(limited)) = lookups.into_iter().next() else {
            return BucketLimit::Nothing;
        };
        let limit = LimitOfBucket {
            counted: CountedLimit {
                counter: Arc::new(KeyCounter {
                    key: limited.key,
                    measure: limited.charge.measure,
                }),
                requests: limited.charge.requests,
            },
            stats: limited.stats,
            is_shadow: limited.shadow,
        };
        if limit.is_shadow || self.0.modes.shadow {
            BucketLimit::Shadow(limit)
        } else {
            BucketLimit::Limited(limit)
        }
    }
}
