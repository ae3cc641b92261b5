//! Quotas that operators put in place of those of the files, until these are read again.

use std::{collections::BTreeMap, time::SystemTime};

use tower_ratelimit::Quota;

/// A quota in place of that of the files.
#[derive(Debug, Clone)]
pub(crate) struct Overridden {
    pub(crate) told: String,
    pub(crate) limit: u64,
    /// The seconds of its window; `None` for those of the limit that it stands in place of.
    pub(crate) window: Option<u64>,
    /// When it ends; `None` at the next reload.
    pub(crate) until: Option<SystemTime>,
    pub(super) of_requests: bool,
    /// Which of those of one policy it is.
    pub(super) number: u64,
}

/// The quotas by the names of policies, and how many there have been.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    pub(super) by_policy: BTreeMap<String, Overridden>,
    pub(super) count: u64,
}

impl Quotas {
    /// Forgets those of rules of requests, or of the others.
    pub(super) fn forget(&mut self, of_requests: bool) {
        self.by_policy
            .retain(|_, quota| quota.of_requests != of_requests);
    }
}

/// A quota in place of a limit's own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instead {
    /// The quota of a rule of requests.
    Quota(Quota),
    /// The units of a descriptor's limit.
    Units(u32),
}
