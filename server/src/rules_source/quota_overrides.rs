//! Quotas that operators set. They replace the quotas of the files until the next reload.

use std::{collections::BTreeMap, time::SystemTime};

use tower_ratelimit::Quota;

/// A quota that replaces one of the files.
#[derive(Debug, Clone)]
pub(crate) struct QuotaOverride {
    pub(crate) text: String,
    pub(crate) limit: u64,
    /// The seconds of its window; `None` if the replaced limit has the same.
    pub(crate) window: Option<u64>,
    /// The end of the override; `None`: the next reload.
    pub(crate) until: Option<SystemTime>,
    pub(super) of_requests: bool,
    /// Distinguishes the overrides of one policy.
    pub(super) number: u64,
}

/// The overrides by the names of policies, and the number of all so far.
#[derive(Debug, Default)]
pub(super) struct QuotaOverrides {
    pub(super) by_policy: BTreeMap<String, QuotaOverride>,
    pub(super) count: u64,
}

impl QuotaOverrides {
    /// Removes the overrides of rules of requests, or of descriptors.
    pub(super) fn forget(&mut self, of_requests: bool) {
        self.by_policy
            .retain(|_, quota| quota.of_requests != of_requests);
    }
}

/// The new quota of an override.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NewQuota {
    /// The quota of a rule of requests.
    Quota(Quota),
    /// The units of a descriptor's limit.
    Units(u32),
}
