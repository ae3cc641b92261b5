//! Observation of decisions: metrics, and the keys that are denied most often.

use std::sync::Arc;

use tower_ratelimit::{Decision, Key, observe::TopKeys};

use super::{RateLimits, lookup::Lookup};
use crate::{
    events,
    lyft::Rules,
    protobuf_messages::{Entry, RateLimitDescriptor, RateLimitRequest},
};

impl RateLimits {
    /// The descriptors that are denied most often, as texts such as `user=eve,path=/`, by the names of their limits.
    /// Other limits may use the same observer.
    pub fn top(&self) -> &Arc<TopKeys> {
        &self.0.top
    }

    pub(super) fn observe(
        &self,
        rules: &Rules,
        request: &RateLimitRequest,
        lookups: &[Lookup<'_>],
        decisions: &[Option<Decision>],
    ) {
        let RateLimitRequest {
            domain,
            descriptors,
            ..
        } = request;
        for ((descriptor, lookup), decision) in descriptors.iter().zip(lookups).zip(decisions) {
            let (Lookup::Limited(limited), Some(decision)) = (lookup, decision) else {
                continue;
            };
            if let Some(reason) = decision.degraded_by() {
                events::rls_degraded(reason.as_str());
            }
            if decision.is_denied() && !limited.charge.is_refund {
                let RateLimitDescriptor { entries, limit, .. } = descriptor;
                let found = rules.find(domain, entries).filter(|_| limit.is_none());
                let name =
                    found.map_or_else(|| domain.clone(), |found| found.name(domain, entries));
                let key = Key::from(text(entries));
                if limited.shadow || self.0.modes.shadow {
                    self.0.top.denied_and_passed(&key, name);
                } else {
                    self.0.top.denied(&key, name);
                }
            }
        }
    }
}

/// The entries in the format of the admin service.
fn text(entries: &[Entry]) -> String {
    let entries = entries.iter();
    let texts = entries.map(|Entry { key, value }| {
        if value.is_empty() {
            key.clone()
        } else {
            format!("{key}={value}")
        }
    });
    texts.collect::<Vec<_>>().join(",")
}
