//! Counts of each limit of the rules of requests, for the live page.

use std::{
    collections::HashMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use tower_ratelimit::{
    Decision,
    observe::{Event, Observer},
};

/// The counts of all limits, by name. Names come from the rules alone.
#[derive(Debug)]
pub struct DecisionCounts {
    /// Whether anybody can read the counts. Otherwise nothing is counted.
    is_served: bool,
    known: RwLock<HashMap<String, Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    denied: AtomicU64,
    passed_anyway: AtomicU64,
    near: AtomicU64,
    /// The largest number minus the least share left since the last reading, in thousandths; 0 if no share is known.
    most_taken: AtomicU32,
}

/// The counts of a limit since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub requests: u64,
    /// Denials of this limit, including those of requests that passed anyway.
    pub denied: u64,
    /// Denied requests that passed, in shadow mode or as overflow.
    pub passed_anyway: u64,
    /// Requests that left a fifth of the limit or less.
    pub near: u64,
    /// The least share of the limit that was left since the last reading, in thousandths.
    pub least_left: Option<u32>,
}

impl DecisionCounts {
    pub fn new(is_served: bool) -> Self {
        Self {
            is_served,
            known: RwLock::default(),
        }
    }

    /// The totals of all limits, in no order. Starts the next reading.
    pub(crate) fn read(&self) -> Vec<(String, Totals)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .iter()
            .map(|(name, counts)| (name.clone(), counts.read()))
            .collect()
    }

    /// Removes limits that are not among the rules any more.
    pub(crate) fn retain(&self, is_in_force: impl Fn(&str) -> bool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| is_in_force(name));
    }

    fn count(&self, decision: &Decision, has_denials: bool, passed_anyway: bool) {
        for quota in decision.quotas() {
            let is_denied = has_denials && quota.is_denied();
            let taken = quota.remaining().map_or(0, |left| {
                let thousandths = left.saturating_mul(1_000) / quota.limit().max(1);
                u32::MAX - u32::try_from(thousandths).unwrap_or(u32::MAX)
            });
            self.with(quota.name(), |counts| {
                counts.requests.fetch_add(1, Relaxed);
                if is_denied {
                    counts.denied.fetch_add(1, Relaxed);
                    if passed_anyway {
                        counts.passed_anyway.fetch_add(1, Relaxed);
                    }
                }
                if quota.is_near_limit() {
                    counts.near.fetch_add(1, Relaxed);
                }
                // Usually not more than the most so far, which needs no write.
                if taken > counts.most_taken.load(Relaxed) {
                    counts.most_taken.fetch_max(taken, Relaxed);
                }
            });
        }
    }

    fn with(&self, name: &str, change: impl Fn(&Counts)) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = known.get(name) {
            change(counts);
            return;
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(name.to_owned()).or_default());
    }
}

impl Observer for DecisionCounts {
    fn observe(&self, event: &Event<'_>) {
        match event {
            _ if !self.is_served => {}
            Event::Decided(decided) => {
                let decision = decided.decision();
                self.count(decision, decision.is_denied(), decided.is_shadow());
            }
            // The decision may be allowed, by the other rules.
            Event::Overflowed(decided) => self.count(decided.decision(), true, true),
            _ => {}
        }
    }
}

impl Counts {
    fn read(&self) -> Totals {
        let most_taken = self.most_taken.swap(0, Relaxed);
        Totals {
            requests: self.requests.load(Relaxed),
            denied: self.denied.load(Relaxed),
            passed_anyway: self.passed_anyway.load(Relaxed),
            near: self.near.load(Relaxed),
            least_left: (most_taken > 0).then(|| u32::MAX - most_taken),
        }
    }
}
