//! The limit of a quota's bucket: that of `ShouldRateLimit` for the same entries.

use std::collections::BTreeMap;

use tower_ratelimit::Key;

use super::{
    RateLimits,
    lookup::{Lookup, look_up, measure},
};
use crate::{
    limiters_by_period::Measure,
    lyft::{Limit, TooManyOrders},
    protobuf_messages::{RateLimitDescriptor, RateLimitRequest},
};

/// The limit of a bucket.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each report"
)]
pub(crate) enum BucketLimit {
    /// No limit, or one that denies nothing.
    Nothing,
    Limited {
        subject: Key,
        measure: Measure,
        requests: u32,
    },
    /// The id fits the rules in too many orders.
    Ambiguous,
}

impl RateLimits {
    /// The limit of a bucket with these pairs; `None` without rules.
    pub(crate) fn bucket_limit(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Option<BucketLimit> {
        let rules = self.rules()?;
        let entries = match rules.in_order(domain, pairs) {
            Ok(Some(entries)) if !self.0.modes.shadow => entries,
            Ok(_) => return Some(BucketLimit::Nothing),
            Err(TooManyOrders) => return Some(BucketLimit::Ambiguous),
        };
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries,
                ..RateLimitDescriptor::default()
            }],
            hits_addend: 0,
        };
        // A descriptor without a limit of its own is never invalid.
        let lookups = look_up(&rules, &self.overrides(), &request).unwrap_or_default();
        Some(match lookups.into_iter().next() {
            Some(Lookup::Limited(limited)) if !limited.shadow => BucketLimit::Limited {
                subject: limited.key,
                measure: limited.charge.measure,
                requests: limited.charge.requests,
            },
            _ => BucketLimit::Nothing,
        })
    }
}

/// How a limit of the rules counts, and its requests; `None` if it denies nothing.
pub(crate) fn denying(limit: &Limit) -> Option<(Measure, u32)> {
    let unit = limit.unit.filter(|_| !limit.shadow)?;
    Some((measure(limit, unit), limit.requests))
}
