//! Statistics of limits, with the names and the splits of Envoy's reference service. Those of its cache are missing:
//! this service has none.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::lyft::{NameAndValues, Rules, StatsName, stats_name};

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
    has_values: bool,
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
    /// Adds units. Above the share `near` of the limit they are near it.
    pub(crate) fn hit(&self, name: &NameAndValues, hits: Hits, near: f32) {
        // In the reference's arithmetic.
        let near = (hits.limit as f32 * near).floor() as u64;
        self.of(name).hit(hits, near);
    }

    /// Adds requests that a client has decided by itself. How near the limit they were is unknown.
    pub(crate) fn report(&self, name: &NameAndValues, allowed: u64, denied: u64) {
        let counts = self.of(name);
        let add = |count: &AtomicU64, units| _ = count.fetch_add(units, Relaxed);
        add(&counts.total_hits, allowed.saturating_add(denied));
        add(&counts.within_limit, allowed);
        add(&counts.over_limit, denied);
    }

    pub(crate) fn refund(&self, name: &NameAndValues, units: u64) {
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
            domains.contains(&name.domain) && (is_used || !counts.has_values)
        });
        let counts = known.counts.values();
        known.values = counts.filter(|counts| counts.has_values).count();
    }

    fn of(&self, (name, has_values): &NameAndValues) -> Arc<LimitCounts> {
        let counts = if *has_values && name.len() > LONGEST_VALUES {
            self.named(&name.other(), false)
        } else {
            self.named(name, *has_values)
        };
        counts.is_used.store(true, Relaxed);
        counts
    }

    fn named(&self, name: &StatsName, mut has_values: bool) -> Arc<LimitCounts> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = known.counts.get(name) {
            return Arc::clone(counts);
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        has_values &= !known.counts.contains_key(name);
        let name = if has_values && known.values >= MOST_VALUES {
            has_values = false;
            name.other()
        } else {
            known.values += usize::from(has_values);
            name.clone()
        };
        let counts = known.counts.entry(Arc::new(name)).or_insert_with(|| {
            Arc::new(LimitCounts {
                has_values,
                ..LimitCounts::default()
            })
        });
        Arc::clone(counts)
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
mod tests {
    //! Statistics of requests that are decided.

    use super::*;
    use crate::{
        decide::{ChargedRequests, Modes, RateLimits},
        limiters_by_period::Counters,
        lyft::Rules,
        protobuf_messages::{Entry, RateLimitDescriptor, RateLimitRequest},
    };

    const RULES: &str = "domain: rl
descriptors:
  - {key: ten, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: user, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_log}}
  - {key: 'q*', rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: w, value: 'x*', rate_limit: {unit: year, requests_per_unit: 10}}
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

    async fn call(limits: &RateLimits, entries: &[(&str, &str)], units: i64) {
        let request = request([(entries, units)]);
        limits.decide(&request).await.expect("a decision");
    }

    /// A request of these entries and units, which are given back if they are negative.
    fn request<'d>(
        descriptors: impl IntoIterator<Item = (&'d [(&'d str, &'d str)], i64)>,
    ) -> RateLimitRequest {
        let descriptors = descriptors
            .into_iter()
            .map(|(entries, units)| descriptor(entries, units));
        RateLimitRequest {
            domain: "rl".to_owned(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        }
    }

    fn descriptor(entries: &[(&str, &str)], units: i64) -> RateLimitDescriptor {
        let entries = entries.iter().map(|(key, value)| Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            limit: None,
            hits_addend: Some(units.unsigned_abs()),
            is_negative_hits: units < 0,
        }
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
                call(&limits, &[(key, "x")], units).await;
                for (count, more) in expected.iter_mut().zip([units as u64, over, near, within]) {
                    *count += more;
                }
                assert_eq!(of(&limits, &name), expected, "{key} {units}");
            }
        }
        call(&limits, &[("ten", "y")], 12).await;
        assert_eq!(
            of(&limits, "rl.ten"),
            [28, 8, 4, 9, 0, 0],
            "from below both"
        );
        call(&limits, &[("ten", "x")], -3).await;
        assert_eq!(of(&limits, "rl.ten"), [28, 8, 4, 9, 0, 3]);
    }

    #[tokio::test]
    async fn shadows_and_names() {
        let limits = limits(Modes {
            near_limit: 0.5,
            ..Modes::default()
        });
        call(&limits, &[("shadow", "x")], 2).await;
        call(&limits, &[("shadow", "x")], 1).await;
        assert_eq!(of(&limits, "rl.shadow"), [3, 1, 1, 2, 1, 0]);
        // Units that cross the limit are in shadow beyond it.
        call(&limits, &[("shadow", "y")], 1).await;
        call(&limits, &[("shadow", "y")], 5).await;
        assert_eq!(of(&limits, "rl.shadow"), [9, 5, 2, 3, 5, 0]);
        call(&limits, &[("a", "1"), ("b", "c")], 1).await;
        call(&limits, &[("free", "x")], 1).await;
        call(&limits, &[("unmatched", "x")], 1).await;
        let all = limits.statistics().all();
        let names = all.iter().map(|(name, _)| name);
        let labels: Vec<_> = names
            .map(|name| name.labels().map(|label| label.1))
            .collect();
        assert_eq!(labels, [["rl", "a", "b_c", ""], ["rl", "shadow", "", ""]]);
    }

    /// Callers must not be able to create series without bound.
    #[tokio::test]
    async fn names_of_values_are_bounded() {
        let limits = limits(Modes::default());
        for value in 0..MOST_VALUES + 5 {
            call(&limits, &[("user", &value.to_string())], 1).await;
        }
        call(&limits, &[("user", "0")], 1).await;
        assert_eq!(limits.statistics().all().len(), MOST_VALUES + 1);
        assert_eq!(of(&limits, "rl.other")[0], 5);
        assert_eq!(of(&limits, "rl.user_0")[0], 2);
    }

    /// The values are the clients', of any length.
    #[tokio::test]
    async fn names_of_long_values_share_one() {
        let limits = limits(Modes::default());
        let fits = "x".repeat(LONGEST_VALUES - "rl.user_".len());
        call(&limits, &[("user", &fits)], 1).await;
        assert_eq!(of(&limits, &format!("rl.user_{fits}"))[0], 1);
        for longer in ["y", "z"] {
            call(&limits, &[("user", &format!("{fits}{longer}"))], 1).await;
        }
        assert_eq!(limits.statistics().all().len(), 2);
        assert_eq!(of(&limits, "rl.other")[0], 2);
        // The file's own names are no longer than the file.
        let key = "k".repeat(LONGEST_VALUES);
        limits.set_rules(rules(&RULES.replace("key: ten", &format!("key: {key}"))));
        call(&limits, &[(&key, "x")], 1).await;
        assert_eq!(of(&limits, &format!("rl.{key}"))[0], 1);
    }

    #[tokio::test]
    async fn unused_names_are_dropped() {
        let limits = limits(Modes::default());
        let names = |limits: &RateLimits| {
            let all = limits.statistics().all();
            let names = all.iter().map(|(name, _)| name.to_string());
            names.collect::<Vec<_>>()
        };
        for value in ["1", "2"] {
            call(&limits, &[("user", value)], 1).await;
        }
        call(&limits, &[("ten", "x")], 1).await;
        limits.set_rules(rules(RULES));
        assert_eq!(names(&limits), ["rl.ten", "rl.user_1", "rl.user_2"]);
        call(&limits, &[("user", "2")], 1).await;
        limits.set_rules(rules(RULES));
        assert_eq!(names(&limits), ["rl.ten", "rl.user_2"]);
        assert_eq!(of(&limits, "rl.user_2")[0], 2, "it continues");
        limits.set_rules(rules(&RULES.replace("domain: rl", "domain: other")));
        assert_eq!(names(&limits), [""; 0]);
    }

    #[tokio::test]
    async fn denied_requests_that_are_not_charged_count_once() {
        let limits = limits(Modes {
            charge: ChargedRequests::Admitted,
            ..Modes::default()
        });
        call(&limits, &[("ten", "x")], 9).await;
        call(&limits, &[("ten", "x")], 3).await;
        call(&limits, &[("ten", "x")], 1).await;
        assert_eq!(of(&limits, "rl.ten"), [13, 2, 3, 10, 0, 0]);
    }

    #[tokio::test]
    async fn dry_runs_are_not_counted() {
        let limits = limits(Modes::default());
        for units in [1, 11, -5] {
            let request = request([(&[("ten", "x")][..], units)]);
            limits.dry_run(&request).await.expect("a decision");
        }
        assert!(limits.statistics().all().is_empty());
    }

    #[tokio::test]
    async fn units_that_a_denied_request_would_give_back_are_none() {
        let limits = limits(Modes {
            charge: ChargedRequests::Admitted,
            ..Modes::default()
        });
        let both = [(&[("ten", "x")][..], 11), (&[("log", "x")][..], -5)];
        limits.decide(&request(both)).await.expect("a decision");
        assert_eq!(of(&limits, "rl.ten"), [11, 1, 2, 0, 0, 0]);
        let all = limits.statistics().all();
        assert!(!all.iter().any(|(name, _)| name.to_string() == "rl.log"));
    }

    /// Where a pattern has a `*` in the key, the name has the caller's key.
    #[tokio::test]
    async fn names_of_keys_that_a_pattern_covers_are_bounded() {
        let limits = limits(Modes::default());
        for key in 0..MOST_VALUES + 5 {
            call(&limits, &[(&format!("q{key}"), "")], 1).await;
        }
        assert_eq!(limits.statistics().all().len(), MOST_VALUES + 1);
        assert_eq!(of(&limits, "rl.other")[0], 5);
        // Values alone make no names.
        for value in ["x1", "x2"] {
            call(&limits, &[("w", value)], 1).await;
        }
        assert_eq!(of(&limits, "rl.w_x*")[0], 2);
    }
}
