//! Quotas that vary by time of day: the list of limits, its text, and what limiters accept.

use std::{collections::BTreeSet, fmt, sync::Mutex, time::Duration};

use super::{
    Algorithm, Quota,
    calendar::{DayLimits, TimeOfDay, number},
};
use crate::{
    error::{ConfigError, ConfigErrorKind},
    lock::unpoisoned,
};

/// The most entries of a list: one for each five minutes of a day.
const MAX_ENTRIES: usize = 288;

/// The largest limit, which the status of a decision holds.
const MAX_LIMIT: u64 = u32::MAX as u64;

const DAY_NANOS: u128 = 86_400_000_000_000;

/// Quotas whose limit varies by the time of day.
impl Quota {
    /// Sets limits for times of day in UTC, or in the zone that `in_zone` sets (feature `calendar`): each is in force from its time until that of the next one,
    /// and the last one until midnight. The limit that was set before is replaced; as
    /// [`limit`](Self::limit) and [`capacity`](Self::capacity) the quota has the largest of the list.
    ///
    /// For [fixed windows](Self::fixed_window), whose limit is the one in force when they begin, and for
    /// [sliding windows](Self::sliding_window). The limit of a sliding window is weighted as its counts
    /// are: while the trailing window reaches over a change, the limits before and after it count in
    /// proportion. So a limit that falls does so over one period, and a slice in which it falls begins
    /// with the old one.
    ///
    /// The first time is 00:00, and all are multiples of the window or [slice](Self::slices), which
    /// divides 24 hours. A list has at most 288 entries, with limits from 1 to 4,294,967,295.
    /// In a zone it divides an hour, or 15 minutes where the zone is not whole hours from UTC.
    /// [`try_varying`](Self::try_varying) takes a list from run time. A list in a quota that is no constant
    /// needs a block of its own: `varying(const { &[..] })`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::{Key, LocalLimiter, Quota, clock::ManualClock, quota::TimeOfDay};
    ///
    /// const TEN_MINUTES: Duration = Duration::from_secs(600);
    /// const QUOTA: Quota = Quota::per(20, TEN_MINUTES)
    ///     .sliding_window()
    ///     .varying(&[(TimeOfDay::MIDNIGHT, 10), (TimeOfDay::at(0, 10), 20)]);
    ///
    /// // 2026-01-01T00:00Z.
    /// let clock = ManualClock::new();
    /// let limiter = LocalLimiter::builder(QUOTA).clock(clock.clone()).build()?;
    /// let key = Key::from("alice");
    /// assert!(limiter.acquire(&key, 5).is_allowed());
    /// clock.advance(Duration::from_secs(600));
    /// assert!(limiter.acquire(&key, 5).is_allowed());
    /// // At half of the second window the limit is 15, and 2.5 + 5 are in use.
    /// clock.advance(Duration::from_secs(300));
    /// let decision = limiter.peek(&key, 1);
    /// assert_eq!(decision.binding().limit(), 15);
    /// assert_eq!(decision.remaining(), Some(8));
    /// # Ok::<_, tower_ratelimit::ConfigError>(())
    /// ```
    pub const fn varying(mut self, limits: &'static [(TimeOfDay, u64)]) -> Self {
        self.limit = 0;
        let mut at = 0;
        while at < limits.len() {
            if limits[at].1 > self.limit {
                self.limit = limits[at].1;
            }
            at += 1;
        }
        self.varying = Some(limits);
        self
    }

    /// [`varying`](Self::varying) with a list from run time, such as one of a configuration file. A list
    /// is kept until the process ends, equal ones once, and at most 4,096 different ones.
    ///
    /// # Errors
    ///
    /// If limiters do not accept such a quota, or the process has had 4,096 other lists.
    pub fn try_varying(self, limits: &[(TimeOfDay, u64)]) -> Result<Self, ConfigError> {
        self.check_varying(limits)?;
        match keep(&LISTS, limits, MAX_LISTS) {
            Some(kept) => Ok(self.varying(kept)),
            None => refuse(format!(
                "this process has had {MAX_LISTS} different lists of limits, the most that it keeps; accepted are \
                 those until it is started again"
            )),
        }
    }

    /// The limits that [`varying`](Self::varying) set; `None` for a limit that is the same all day.
    pub const fn varying_limits(&self) -> Option<&'static [(TimeOfDay, u64)]> {
        self.varying
    }

    /// Checks that limiters accept the quota with these limits.
    pub(super) fn check_varying(&self, limits: &DayLimits) -> Result<(), ConfigError> {
        let calendar = self.calendar;
        if calendar.is_some_and(|calendar| !calendar.is_of_days()) {
            return refuse(
                "a quota of the calendar has one limit; accepted are windows of one length",
            );
        }
        let slices = match self.algorithm() {
            Algorithm::FixedWindow if self.is_uncapped() => {
                return refuse("an uncapped quota has one limit; leave one of the two out");
            }
            Algorithm::FixedWindow => 1,
            Algorithm::SlidingWindow => self.slice_count().max(1),
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } | Algorithm::SlidingLog => {
                return refuse(format!(
                    "the limit of a {} is the same all day; accepted are fixed_window and sliding_window",
                    self.algorithm_name()
                ));
            }
        };
        // A slice of a fraction of a microsecond is refused by the check of slices.
        let slice = self.period() / slices;
        let nanos = slice.as_nanos();
        if nanos == 0 || !DAY_NANOS.is_multiple_of(nanos) || !nanos.is_multiple_of(1_000) {
            return refuse(format!(
                "{:?} in {slices} slices; accepted is a slice of whole microseconds that divides 24 hours",
                self.period()
            ));
        }
        #[cfg(feature = "calendar")]
        if let Some(calendar) = calendar {
            calendar.check_slice(slice)?;
        }
        check_entries(limits, slice)
    }

    pub(super) fn with_limits(mut self, change: impl Fn(u64) -> u64) -> Self {
        self.limit = change(self.limit);
        let Some(limits) = self.varying else {
            return self;
        };
        let limits = limits.iter().map(|(at, limit)| (*at, change(*limit)));
        let limits: Vec<_> = limits.collect();
        // A share of an accepted list: a process has few.
        let kept = keep(&LISTS, &limits, usize::MAX);
        kept.map_or(self, |kept| self.varying(kept))
    }
}

/// The most different lists that a process accepts, of together at most 19 MB. They are never freed, since a [`Quota`] is
/// copied, and each change of a limit by an operator may be another one.
const MAX_LISTS: usize = 4_096;

static LISTS: KeptLists = Mutex::new(BTreeSet::new());

/// Lists that are kept for the life of the process, equal ones once.
type KeptLists = Mutex<BTreeSet<&'static DayLimits>>;

/// Keeps the list unless it is one more than `most`.
fn keep(lists: &KeptLists, limits: &DayLimits, most: usize) -> Option<&'static DayLimits> {
    let mut lists = unpoisoned(lists.lock());
    if !lists.contains(limits) {
        if lists.len() >= most {
            return None;
        }
        lists.insert(Box::leak(Box::from(limits)));
    }
    lists.get(limits).copied()
}

fn check_entries(limits: &DayLimits, slice: Duration) -> Result<(), ConfigError> {
    if limits.is_empty() || limits.len() > MAX_ENTRIES {
        let times = limits.len();
        return refuse(format!("{times} times; accepted are 1 to {MAX_ENTRIES}"));
    }
    let length = slice.as_nanos();
    let is_edge = |seconds: u32| (u128::from(seconds) * 1_000_000_000).is_multiple_of(length);
    let mut before = None;
    for (time, limit) in limits {
        let fault = match (time.seconds(), before) {
            (None, _) => format!("{time} is no time of day; accepted are 00:00 to 23:59:59"),
            (Some(1..), None) => {
                format!("the first time is {time}; accepted is 00:00, since every day begins then")
            }
            (_, Some(last)) if last == *time => {
                format!("{time} appears twice; accepted is once")
            }
            (_, Some(last)) if last > *time => {
                format!("{time} follows {last}; accepted are times in order")
            }
            _ if *limit == 0 || *limit > MAX_LIMIT => {
                format!("the limit from {time} on is {limit}; accepted are 1 to {MAX_LIMIT}")
            }
            (Some(seconds), _) if !is_edge(seconds) => format!(
                "{time} is within a window or slice; accepted are multiples of its length, {slice:?}"
            ),
            _ => {
                before = Some(*time);
                continue;
            }
        };
        return refuse(fault);
    }
    Ok(())
}

/// Reads a list as texts have it: `00:00=10/08:00=20`. A comma would end the text in a table of YAML.
fn parse(text: &str) -> Result<Vec<(TimeOfDay, u64)>, ConfigError> {
    let mut limits = Vec::new();
    for part in text.split('/') {
        let entry = part.split_once('=');
        let entry = entry.and_then(|(time, limit)| Some((time.parse().ok()?, number(limit)?)));
        let Some(entry) = entry else {
            let shown: String = part.chars().take(40).collect();
            return refuse(format!(
                "{shown:?} is no time with a limit; accepted is a list such as \"00:00=10/08:00=20\""
            ));
        };
        limits.push(entry);
        if limits.len() > MAX_ENTRIES {
            return refuse(format!(
                "more than {MAX_ENTRIES} times; accepted are 1 to {MAX_ENTRIES}"
            ));
        }
    }
    Ok(limits)
}

/// The quota of a text with these limits. Its rate has the largest, so that no number of the text is without a
/// meaning.
pub(super) fn of_text(quota: Quota, limits: &str) -> Result<Quota, ConfigError> {
    let varying = quota.try_varying(&parse(limits)?)?;
    if quota.limit() == varying.limit() {
        return Ok(varying);
    }
    refuse(format!(
        "the rate's limit is {}; accepted is the largest of the day, {}",
        quota.limit(),
        varying.limit()
    ))
}

/// The list as [`parse`] reads it.
pub(super) fn text(limits: &DayLimits) -> String {
    let entries = limits.iter().map(|(time, limit)| format!("{time}={limit}"));
    entries.collect::<Vec<_>>().join("/")
}

fn refuse<T>(fault: impl fmt::Display) -> Result<T, ConfigError> {
    let message = format!("varying: {fault}");
    Err(ConfigError::new(ConfigErrorKind::Varying, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_a_bounded_number_of_lists() {
        let lists = KeptLists::default();
        let list = |limit| [(TimeOfDay::MIDNIGHT, limit)];
        for limit in [1, 2, 1, 2] {
            let kept = keep(&lists, &list(limit), 2);
            assert_eq!(kept.expect("one of two"), list(limit));
        }
        assert_eq!(keep(&lists, &list(3), 2), None);
        assert_eq!(unpoisoned(lists.lock()).len(), 2);
        assert!(keep(&lists, &list(2), 2).is_some());
    }
}
