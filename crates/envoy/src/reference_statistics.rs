//! Statistics of limits, with the names and the splits of Envoy's reference service. Those of its cache are missing:
//! this service has none.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::lyft::{Rules, StatsName, stats_name};

/// The most names with values of requests. Further ones count under one name for each domain.
const MOST_VALUES: usize = 10_000;

/// The longest such name, in bytes. Longer ones count under the domain's name, too.
const LONGEST_VALUES: usize = 200;

/// The counts of all limits, by name. The counts are units: a request counts for as many as it takes.
#[derive(Debug, Default)]
pub struct Statistics(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    counts: HashMap<Arc<StatsName>, Arc<LimitCounts>>,
    /// The number of names with values of requests.
    values: usize,
}

/// The units requested of a limit.
#[derive(Debug, Default)]
struct LimitCounts {
    total_hits: AtomicU64,
    over_limit: AtomicU64,
    near_limit: AtomicU64,
    within_limit: AtomicU64,
    shadow_mode: AtomicU64,
    total_negative_hits: AtomicU64,
    /// Whether the limit was used since the rules were last read.
    is_used: AtomicBool,
}

/// The names of the counts, and their meaning, in the order of [`Statistics::all`].
pub const COUNTS: [(&str, &str); 6] = [
    ("total_hits", "Units requested of limits."),
    ("over_limit", "Units beyond the limit."),
    ("near_limit", "Units within the last fifth of the limit."),
    ("within_limit", "Units of requests within the limit."),
    ("shadow_mode", "Units that passed in shadow mode only."),
    ("total_negative_hits", "Units that were given back."),
];

/// The share of a limit above which units are near it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NearLimit(pub(crate) f32);

impl Default for NearLimit {
    fn default() -> Self {
        Self(0.8)
    }
}

impl NearLimit {
    /// The number of units below it, in the reference's arithmetic.
    fn of(self, limit: u32) -> u64 {
        (limit as f32 * self.0).floor() as u64
    }
}

/// The units of a request, and the count before them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hits {
    pub(crate) limit: u32,
    pub(crate) before: u64,
    pub(crate) units: u64,
    pub(crate) is_over: bool,
    pub(crate) is_shadow: bool,
}

impl Statistics {
    pub(crate) fn hit(&self, name: &StatsName, hits: Hits, near: NearLimit) {
        self.of(name).hit(hits, near.of(hits.limit));
    }

    /// Adds requests that a client has decided by itself. How near the limit they were is unknown.
    pub(crate) fn report(&self, name: &StatsName, allowed: u64, denied: u64) {
        let counts = self.of(name);
        let add = |count: &AtomicU64, units| _ = count.fetch_add(units, Relaxed);
        add(&counts.total_hits, allowed.saturating_add(denied));
        add(&counts.within_limit, allowed);
        add(&counts.over_limit, denied);
    }

    pub(crate) fn refund(&self, name: &StatsName, units: u64) {
        self.of(name).total_negative_hits.fetch_add(units, Relaxed);
    }

    /// All counts, in the order of their names. The numbers are in the order of [`COUNTS`].
    pub fn all(&self) -> Vec<(Arc<StatsName>, [u64; COUNTS.len()])> {
        // A new name waits for the lock, and all others behind it, so only handles are copied under it: for ten
        // thousand limits that takes a twentieth of the time of copying their names.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let counts = known.counts.iter();
        let counts: Vec<_> = counts
            .map(|(name, counts)| (Arc::clone(name), Arc::clone(counts)))
            .collect();
        drop(known);
        let mut numbers: Vec<_> = counts
            .into_iter()
            .map(|(name, counts)| (name, counts.numbers()))
            .collect();
        numbers.sort_by(|(one, _), (other, _)| one.cmp(other));
        numbers
    }

    /// Removes the names of missing domains, and the names with values of requests that were not used since the last
    /// call.
    pub(crate) fn forget(&self, rules: &Rules) {
        let domains: HashSet<String> = rules.domains().map(stats_name).collect();
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.counts.retain(|name, counts| {
            let is_used = counts.is_used.swap(false, Relaxed);
            domains.contains(name.domain()) && (is_used || !name.has_values())
        });
        known.values = known.counts.keys().filter(|name| name.has_values()).count();
    }

    fn of(&self, name: &StatsName) -> Arc<LimitCounts> {
        let counts = if name.has_values() && name.len() > LONGEST_VALUES {
            self.named(&name.other())
        } else {
            self.named(name)
        };
        counts.is_used.store(true, Relaxed);
        counts
    }

    fn named(&self, name: &StatsName) -> Arc<LimitCounts> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = known.counts.get(name) {
            return Arc::clone(counts);
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = !known.counts.contains_key(name);
        let name = if !is_new || !name.has_values() {
            name.clone()
        } else if known.values >= MOST_VALUES {
            name.other()
        } else {
            known.values += 1;
            name.clone()
        };
        Arc::clone(known.counts.entry(Arc::new(name)).or_default())
    }
}

impl LimitCounts {
    /// Counts units. Those that cross a bound are split.
    fn hit(&self, hits: Hits, near: u64) {
        let Hits {
            limit,
            before,
            units,
            is_over,
            is_shadow,
        } = hits;
        let (limit, after) = (u64::from(limit), before.saturating_add(units));
        let add = |count: &AtomicU64, units| _ = count.fetch_add(units, Relaxed);
        add(&self.total_hits, units);
        if is_over {
            let below = limit.saturating_sub(before).min(units);
            add(&self.over_limit, units - below);
            add(
                &self.near_limit,
                limit.saturating_sub(near.max(before)).min(below),
            );
            if is_shadow {
                add(&self.shadow_mode, units - below);
            }
        } else {
            add(
                &self.near_limit,
                after.saturating_sub(near.max(before)).min(units),
            );
            add(&self.within_limit, units);
        }
    }

    fn numbers(&self) -> [u64; COUNTS.len()] {
        [
            &self.total_hits,
            &self.over_limit,
            &self.near_limit,
            &self.within_limit,
            &self.shadow_mode,
            &self.total_negative_hits,
        ]
        .map(|count| count.load(Relaxed))
    }
}

#[cfg(test)]
mod tests;
