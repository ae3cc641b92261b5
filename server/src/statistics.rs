//! Statistics of limits, under the names and with the splits of Envoy's reference service, but for those of its cache,
//! which there is not.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::lyft::{Rules, StatsName, stats_name};

/// The most names that tell values of requests. What comes beyond counts under one name for each domain.
const MOST_VALUES: usize = 10_000;

/// The longest of such names, in bytes. Longer ones count there, too.
const LONGEST_VALUES: usize = 200;

/// The counts of all limits, by name. They are units: a request counts for as many as it takes.
#[derive(Debug, Default)]
pub struct Statistics(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    counts: HashMap<Arc<StatsName>, Arc<LimitCounts>>,
    /// How many of the names tell values.
    values: usize,
}

/// The units that a limit was asked about.
#[derive(Debug, Default)]
struct LimitCounts {
    total_hits: AtomicU64,
    over_limit: AtomicU64,
    near_limit: AtomicU64,
    within_limit: AtomicU64,
    shadow_mode: AtomicU64,
    total_negative_hits: AtomicU64,
    /// Whether the limit was asked about since the rules were last read.
    is_asked: AtomicBool,
}

/// The names of the counts, and their meaning, in the order of [`Statistics::all`].
pub const COUNTS: [(&str, &str); 6] = [
    ("total_hits", "Units that limits were asked about."),
    ("over_limit", "Units beyond the limit."),
    ("near_limit", "Units within the last fifth of the limit."),
    ("within_limit", "Units of requests within the limit."),
    ("shadow_mode", "Units that passed in shadow mode only."),
    ("total_negative_hits", "Units that were given back."),
];

/// The share of a limit from which on it is near.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NearLimit(pub(crate) f32);

impl Default for NearLimit {
    fn default() -> Self {
        Self(0.8)
    }
}

impl NearLimit {
    /// The units below it, in the reference's arithmetic.
    fn of(self, limit: u32) -> u64 {
        (limit as f32 * self.0).floor() as u64
    }
}

/// The units that came, and where they found the count.
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

    pub(crate) fn give_back(&self, name: &StatsName, units: u64) {
        self.of(name).total_negative_hits.fetch_add(units, Relaxed);
    }

    /// All counts, in the order of their names. The numbers are in the order of [`COUNTS`].
    #[must_use]
    pub fn all(&self) -> Vec<(Arc<StatsName>, [u64; COUNTS.len()])> {
        // A new name waits for the lock, and all others behind it. Under it only handles are copied: of ten thousand
        // limits in a twentieth of the time that their names would take.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let counts = known.counts.iter();
        let counts = counts.map(|(name, counts)| (Arc::clone(name), Arc::clone(counts)));
        let counts: Vec<_> = counts.collect();
        drop(known);
        let told = counts.into_iter();
        let mut told: Vec<_> = told.map(|(name, counts)| (name, counts.told())).collect();
        told.sort_by(|(one, _), (other, _)| one.cmp(other));
        told
    }

    /// Forgets the names of domains that are gone, and those with values of requests that nobody has asked about
    /// since this was last done.
    pub(crate) fn forget(&self, rules: &Rules) {
        let domains: HashSet<String> = rules.domains().map(stats_name).collect();
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.counts.retain(|name, counts| {
            let is_asked = counts.is_asked.swap(false, Relaxed);
            domains.contains(name.domain()) && (is_asked || !name.tells_values())
        });
        known.values = known
            .counts
            .keys()
            .filter(|name| name.tells_values())
            .count();
    }

    fn of(&self, name: &StatsName) -> Arc<LimitCounts> {
        let counts = match name.tells_values() && name.len() > LONGEST_VALUES {
            true => self.named(&name.other()),
            false => self.named(name),
        };
        counts.is_asked.store(true, Relaxed);
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
        let name = match is_new && name.tells_values() {
            true if known.values >= MOST_VALUES => name.other(),
            true => {
                known.values += 1;
                name.clone()
            }
            false => name.clone(),
        };
        Arc::clone(known.counts.entry(Arc::new(name)).or_default())
    }
}

impl LimitCounts {
    /// Counts units, those that cross a bound on either side of it.
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
        } else {
            add(
                &self.near_limit,
                after.saturating_sub(near.max(before)).min(units),
            );
            add(&self.within_limit, units);
        }
        if is_over && is_shadow {
            add(&self.shadow_mode, units);
        }
    }

    fn told(&self) -> [u64; COUNTS.len()] {
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
mod tests {
    use super::*;
    use crate::{
        counters::Counters,
        decide::{Modes, RateLimits},
        lyft::Rules,
        messages::{Entry, RateLimitDescriptor, RateLimitRequest},
    };

    const RULES: &str = "domain: rl
descriptors:
  - {key: ten, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: told, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_log}}
  - key: a
    descriptors: [{key: b, value: c, rate_limit: {unit: year, requests_per_unit: 10}}]
";

    fn limits(modes: Modes) -> RateLimits {
        let store = tower_ratelimit::LocalStore::new();
        let limits = RateLimits::new(Counters::local(&store), modes);
        limits.set_rules(rules(RULES));
        limits
    }

    fn rules(text: &str) -> Rules {
        let rules = Rules::builder().parse([("rules.yaml", text)]);
        rules.expect("rules")
    }

    async fn ask(limits: &RateLimits, entries: &[(&str, &str)], units: i64) {
        let entries = entries.iter().map(|(key, value)| Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        });
        let descriptor = RateLimitDescriptor {
            entries: entries.collect(),
            limit: None,
            hits_addend: Some(units.unsigned_abs()),
            is_negative_hits: units < 0,
        };
        let request = RateLimitRequest {
            domain: "rl".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        limits.decide(&request).await.expect("a decision");
    }

    fn of(limits: &RateLimits, name: &str) -> [u64; COUNTS.len()] {
        let all = limits.statistics().all();
        let found = all.iter().find(|(known, _)| known.to_string() == name);
        found.unwrap_or_else(|| panic!("{name} of {all:?}")).1
    }

    /// Eight of ten are not near; units that cross a bound count on either side of it.
    #[tokio::test]
    async fn units_that_cross_a_bound_are_split() {
        let limits = limits(Modes::default());
        for key in ["ten", "log"] {
            let name = format!("rl.{key}");
            let mut expected = [0; COUNTS.len()];
            for (units, [over, near, within]) in [
                (7, [0, 0, 7]),
                (1, [0, 0, 1]),
                (0, [0, 0, 0]),
                (1, [0, 1, 1]),
                (3, [2, 1, 0]),
                (4, [4, 0, 0]),
            ] {
                // A log takes nothing of what does not fit.
                if key == "log" && units == 3 {
                    break;
                }
                ask(&limits, &[(key, "x")], units).await;
                for (count, more) in expected.iter_mut().zip([units as u64, over, near, within]) {
                    *count += more;
                }
                assert_eq!(of(&limits, &name), expected, "{key} {units}");
            }
        }
        ask(&limits, &[("ten", "y")], 12).await;
        assert_eq!(
            of(&limits, "rl.ten"),
            [28, 8, 4, 9, 0, 0],
            "from below both"
        );
        ask(&limits, &[("ten", "x")], -3).await;
        assert_eq!(of(&limits, "rl.ten"), [28, 8, 4, 9, 0, 3]);
    }

    #[tokio::test]
    async fn shadows_and_names() {
        let limits = limits(Modes::default().near_limit(0.5));
        ask(&limits, &[("shadow", "x")], 2).await;
        ask(&limits, &[("shadow", "x")], 1).await;
        assert_eq!(of(&limits, "rl.shadow"), [3, 1, 1, 2, 1, 0]);
        ask(&limits, &[("a", "1"), ("b", "c")], 1).await;
        ask(&limits, &[("free", "x")], 1).await;
        ask(&limits, &[("unmatched", "x")], 1).await;
        let all = limits.statistics().all();
        let names = all.iter().map(|(name, _)| name);
        let labels: Vec<_> = names
            .map(|name| name.labels().map(|label| label.1))
            .collect();
        assert_eq!(labels, [["rl", "a", "b_c"], ["rl", "shadow", ""]]);
    }

    /// So that callers cannot make up series without end.
    #[tokio::test]
    async fn names_of_values_are_bounded() {
        let limits = limits(Modes::default());
        for value in 0..MOST_VALUES + 5 {
            ask(&limits, &[("told", &value.to_string())], 1).await;
        }
        ask(&limits, &[("told", "0")], 1).await;
        assert_eq!(limits.statistics().all().len(), MOST_VALUES + 1);
        assert_eq!(of(&limits, "rl.other")[0], 5);
        assert_eq!(of(&limits, "rl.told_0")[0], 2);
    }

    /// The values are the clients', of any length.
    #[tokio::test]
    async fn names_of_long_values_share_one() {
        let limits = limits(Modes::default());
        let fits = "x".repeat(LONGEST_VALUES - "rl.told_".len());
        ask(&limits, &[("told", &fits)], 1).await;
        assert_eq!(of(&limits, &format!("rl.told_{fits}"))[0], 1);
        for longer in ["y", "z"] {
            ask(&limits, &[("told", &format!("{fits}{longer}"))], 1).await;
        }
        assert_eq!(limits.statistics().all().len(), 2);
        assert_eq!(of(&limits, "rl.other")[0], 2);
        // The file's own names are no longer than the file.
        let key = "k".repeat(LONGEST_VALUES);
        limits.set_rules(rules(&RULES.replace("key: ten", &format!("key: {key}"))));
        ask(&limits, &[(&key, "x")], 1).await;
        assert_eq!(of(&limits, &format!("rl.{key}"))[0], 1);
    }

    #[tokio::test]
    async fn names_that_nobody_asks_for_are_forgotten() {
        let limits = limits(Modes::default());
        let names = |limits: &RateLimits| {
            let all = limits.statistics().all();
            let names = all.iter().map(|(name, _)| name.to_string());
            names.collect::<Vec<_>>()
        };
        for value in ["1", "2"] {
            ask(&limits, &[("told", value)], 1).await;
        }
        ask(&limits, &[("ten", "x")], 1).await;
        limits.set_rules(rules(RULES));
        assert_eq!(names(&limits), ["rl.ten", "rl.told_1", "rl.told_2"]);
        ask(&limits, &[("told", "2")], 1).await;
        limits.set_rules(rules(RULES));
        assert_eq!(names(&limits), ["rl.ten", "rl.told_2"]);
        assert_eq!(of(&limits, "rl.told_2")[0], 2, "it goes on");
        limits.set_rules(rules(&RULES.replace("domain: rl", "domain: other")));
        assert_eq!(names(&limits), [""; 0]);
    }

    #[tokio::test]
    async fn denied_requests_that_are_not_charged_count_once() {
        let limits = limits(Modes::default().charge_admitted(true));
        ask(&limits, &[("ten", "x")], 9).await;
        ask(&limits, &[("ten", "x")], 3).await;
        ask(&limits, &[("ten", "x")], 1).await;
        assert_eq!(of(&limits, "rl.ten"), [13, 2, 3, 10, 0, 0]);
    }
}
