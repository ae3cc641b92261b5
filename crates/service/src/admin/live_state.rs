//! The sampled state of the live page: the last five minutes of each limit, by the second, and the viewers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use axum::body::Bytes;
use tokio::sync::{Semaphore, watch};
use tower_ratelimit::store::StoreStats;

use crate::{
    decision_counts::{DecisionCounts, Totals},
    shutdown::Draining,
};

/// The most viewers at a time.
pub(super) const MAX_VIEWERS: usize = 16;

/// A number in use, and the most of it.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub name: &'static str,
    pub used: usize,
    pub most: usize,
}

/// The numbers of the process that the page shows beside its limits.
#[derive(Clone)]
pub struct LiveSources {
    /// The counts of the rules of requests.
    pub counts: Arc<DecisionCounts>,
    /// Numbers with a most, such as requests in flight.
    pub rooms: Arc<dyn Fn() -> Vec<Room> + Send + Sync>,
    /// Whether the process is stopping, so that streams end.
    pub draining: Draining,
}

/// The sampled state, and its viewers.
pub(super) struct Live {
    pub(super) sources: LiveSources,
    pub(super) started_at: Instant,
    sampled: Mutex<Sampled>,
    pub(super) viewers: Arc<Semaphore>,
    /// The newest event; empty once the process is stopping.
    pub(super) events: watch::Sender<Bytes>,
}

#[derive(Default)]
pub(super) struct Sampled {
    pub(super) histories: Histories,
    /// The decisions without the store up to the last sample, and in the second before it.
    pub(super) degraded: u64,
    pub(super) degraded_now: u64,
    /// The store's counts half a minute to a minute ago, and those of the last half minute's begin.
    pub store: [StoreStats; 2],
    seconds: u64,
}

/// The seconds between two changes of [`Sampled::store`].
const HALF_MINUTE: u64 = 30;

impl Sampled {
    /// Adds a second.
    pub(super) fn sample_store(&mut self, stats: StoreStats) {
        let degraded = stats.degraded_by_reason().map(|(_, count)| count).sum();
        self.degraded_now = u64::saturating_sub(degraded, self.degraded);
        self.degraded = degraded;
        if self.seconds.is_multiple_of(HALF_MINUTE) {
            self.store = [self.store[1], stats];
        }
        self.seconds += 1;
    }
}

impl Live {
    pub(crate) fn new(sources: LiveSources) -> Self {
        Self {
            sources,
            started_at: Instant::now(),
            sampled: Mutex::default(),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            events: watch::Sender::new(Bytes::new()),
        }
    }

    pub(super) fn sampled(&self) -> MutexGuard<'_, Sampled> {
        self.sampled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_viewers(&self) -> bool {
        self.viewers.available_permits() < MAX_VIEWERS
    }
}

/// The seconds of a history.
pub(super) const SECONDS: usize = 300;

/// The limits with a history of their own. All others share one.
const MOST_LIMITS: usize = 256;

/// The name of the others' history, which no limit has.
const OTHERS: &str = "(others)";

/// The seconds of the last minute.
const MINUTE: usize = 60;

/// The tenths of a minute, each with the least share in it.
const PARTS: usize = 6;

/// The counts of one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Second {
    pub(super) requests: u32,
    pub(super) denied: u32,
    pub(super) passed_anyway: u32,
    pub(super) near: u32,
}

/// The history of one limit.
#[derive(Debug)]
pub(super) struct History {
    seconds: Box<[Second; SECONDS]>,
    /// The least share left in each tenth of the last minute, in thousandths.
    least_left: [Option<u32>; PARTS],
    last: Option<Totals>,
}

/// The histories of all limits.
#[derive(Debug, Default)]
pub(super) struct Histories {
    limits: HashMap<String, History>,
    /// The totals of limits without a history of their own.
    others: HashMap<String, Totals>,
    /// The number of samples taken.
    samples: usize,
}

impl Histories {
    /// Adds the second that ends now. A limit that is missing is forgotten.
    pub(super) fn sample(&mut self, totals: HashMap<String, Totals>) {
        let at = self.samples;
        self.samples += 1;
        self.limits
            .retain(|name, _| totals.contains_key(name) || name == OTHERS);
        self.others.retain(|name, _| totals.contains_key(name));
        let mut others = Second::default();
        for (name, totals) in totals {
            let has_own = self.limits.contains_key(&name)
                || (self.limits.len() < MOST_LIMITS && !self.others.contains_key(&name));
            if has_own {
                self.limits.entry(name).or_default().add(at, totals);
            } else {
                let last = self.others.insert(name, totals);
                others.add(Second::between(last, totals));
            }
        }
        if !self.others.is_empty() {
            let history = self.limits.entry(OTHERS.to_owned()).or_default();
            history.seconds[at % SECONDS] = others;
        }
    }

    /// The limits with their histories, the most important first: those that refused requests in the last minute, then
    /// those with the most requests.
    pub(super) fn ranked(&self, most: usize) -> Vec<(&str, &History)> {
        let limits = self.limits.iter();
        let mut ranked: Vec<_> = limits
            .map(|(name, history)| (self.minute(history), name.as_str(), history))
            .collect();
        ranked.sort_by(|(one, name, _), (other, other_name, _)| {
            let rank = |minute: &Second| (minute.refused() > 0, minute.requests);
            rank(other).cmp(&rank(one)).then(name.cmp(other_name))
        });
        ranked.truncate(most);
        ranked
            .into_iter()
            .map(|(_, name, history)| (name, history))
            .collect()
    }

    /// The seconds of a history, the oldest first. Those before the first sample are empty.
    pub(super) fn seconds<'h>(
        &self,
        history: &'h History,
    ) -> impl DoubleEndedIterator<Item = Second> + use<'h> {
        let newest = self.samples;
        let seconds = &history.seconds;
        (0..SECONDS).map(move |back| seconds[(newest + back) % SECONDS])
    }

    /// The sum of the last minute.
    pub(super) fn minute(&self, history: &History) -> Second {
        let mut sum = Second::default();
        self.seconds(history)
            .rev()
            .take(MINUTE)
            .for_each(|second| sum.add(second));
        sum
    }
}

impl History {
    /// The least share left in the last minute, in thousandths; `None` without a decision.
    pub(super) fn least_left(&self) -> Option<u32> {
        self.least_left.iter().flatten().min().copied()
    }

    fn add(&mut self, at: usize, totals: Totals) {
        self.seconds[at % SECONDS] = Second::between(self.last, totals);
        self.last = Some(totals);
        let part = &mut self.least_left[at / (MINUTE / PARTS) % PARTS];
        if at.is_multiple_of(MINUTE / PARTS) {
            *part = None;
        }
        *part = [*part, totals.least_left].into_iter().flatten().min();
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            seconds: Box::new([Second::default(); SECONDS]),
            least_left: [None; PARTS],
            last: None,
        }
    }
}

impl Second {
    /// The counts between two readings. A limit that is new counts from its first decision; one whose counts began
    /// again, after its rule was taken out and came back, too.
    fn between(last: Option<Totals>, now: Totals) -> Self {
        let of = |count: fn(&Totals) -> u64| {
            let before = last.as_ref().map_or(0, count);
            let now = count(&now);
            let more = now.checked_sub(before).unwrap_or(now);
            u32::try_from(more).unwrap_or(u32::MAX)
        };
        Self {
            requests: of(|totals| totals.requests),
            denied: of(|totals| totals.denied),
            passed_anyway: of(|totals| totals.passed_anyway),
            near: of(|totals| totals.near),
        }
    }

    /// Requests that were denied and did not pass.
    fn refused(&self) -> u32 {
        self.denied.saturating_sub(self.passed_anyway)
    }

    fn add(&mut self, other: Self) {
        let Self {
            requests,
            denied,
            passed_anyway,
            near,
        } = other;
        self.requests = self.requests.saturating_add(requests);
        self.denied = self.denied.saturating_add(denied);
        self.passed_anyway = self.passed_anyway.saturating_add(passed_anyway);
        self.near = self.near.saturating_add(near);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64, denied: u64, least_left: Option<u32>) -> Totals {
        Totals {
            requests,
            denied,
            passed_anyway: 0,
            near: 0,
            least_left,
        }
    }

    fn sample(histories: &mut Histories, limits: &[(&str, Totals)]) {
        let limits = limits.iter();
        histories.sample(limits.map(|(name, t)| ((*name).to_owned(), *t)).collect());
    }

    #[test]
    fn seconds_are_differences_and_the_oldest_is_first() {
        let mut histories = Histories::default();
        for second in 1..=400 {
            sample(
                &mut histories,
                &[("api", totals(second * 10, second, None))],
            );
        }
        let (name, history) = histories.ranked(1)[0];
        assert_eq!(name, "api");
        let all: Vec<_> = histories.seconds(history).collect();
        let expected = Second {
            requests: 10,
            denied: 1,
            passed_anyway: 0,
            near: 0,
        };
        assert_eq!(all, [expected; SECONDS]);
        assert_eq!(histories.minute(history).requests, 600);

        sample(&mut histories, &[("api", totals(4_007, 400, None))]);
        let (_, history) = histories.ranked(1)[0];
        let newest = histories.seconds(history).next_back();
        assert_eq!(newest.map(|second| second.requests), Some(7));
    }

    #[test]
    fn limits_that_deny_come_first() {
        let mut histories = Histories::default();
        let limits = [
            ("busy", totals(900, 0, None)),
            ("quiet", totals(1, 0, None)),
            ("full", totals(5, 3, None)),
        ];
        sample(&mut histories, &limits);
        let names = |most| -> Vec<_> {
            let ranked = histories.ranked(most).into_iter();
            ranked.map(|(name, _)| name.to_owned()).collect()
        };
        assert_eq!(names(9), ["full", "busy", "quiet"]);
        assert_eq!(names(1), ["full"]);
    }

    #[test]
    fn least_share_is_that_of_the_last_minute() {
        let mut histories = Histories::default();
        let least = |histories: &Histories| histories.ranked(1)[0].1.least_left();
        sample(&mut histories, &[("api", totals(1, 0, Some(120)))]);
        sample(&mut histories, &[("api", totals(2, 0, Some(700)))]);
        assert_eq!(least(&histories), Some(120));
        for _ in 0..50 {
            sample(&mut histories, &[("api", totals(2, 0, None))]);
        }
        assert_eq!(least(&histories), Some(120));
        for _ in 0..60 {
            sample(&mut histories, &[("api", totals(2, 0, None))]);
        }
        assert_eq!(least(&histories), None);
    }

    #[test]
    fn limits_beyond_the_most_share_a_history() {
        let mut histories = Histories::default();
        let limits = |requests| -> HashMap<_, _> {
            let numbers = 0..1_000;
            { numbers.map(|n| (format!("limit-{n:04}"), totals(requests, 0, None))) }.collect()
        };
        histories.sample(limits(1));
        histories.sample(limits(3));
        assert_eq!(histories.limits.len(), MOST_LIMITS + 1);
        let others = &histories.limits[OTHERS];
        let newest = histories.seconds(others).next_back();
        let number = 2 * u32::try_from(1_000 - MOST_LIMITS).expect("few");
        assert_eq!(newest.map(|second| second.requests), Some(number));

        histories.sample(HashMap::new());
        assert_eq!(histories.limits.len(), 1);
    }

    #[test]
    fn limit_that_comes_back_counts_from_its_first_decision() {
        let mut histories = Histories::default();
        sample(&mut histories, &[("api", totals(50, 0, None))]);
        sample(&mut histories, &[("api", totals(2, 0, None))]);
        let (_, history) = histories.ranked(1)[0];
        let newest = histories.seconds(history).next_back();
        assert_eq!(newest.map(|second| second.requests), Some(2));
    }
}
