//! Limits of windows, which may vary by the time of day.
//!
//! L(k) is the limit of window or slice k: the one in force when it begins. The limit of a sliding window of n slices
//! is weighted as its counts are: at e of S microseconds of slice k it is
//! ((S − e)·L(k − n) + S·ΣL(k − n + 1..k − 1) + e·L(k)) / (n·S). The limit and the units in use are fractions that are
//! rounded once, together: rounded apart, admission would flicker where limits fall.

use std::iter;

#[cfg(feature = "calendar")]
use jiff::{Timestamp, tz::TimeZone};

use crate::quota::{DayLimits, Priority, Quota, TimeOfDay};

const DAY_MICROS: i64 = 86_400_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) enum Limits {
    Same(u64),
    OfDay(LimitsOfDay),
}

/// Limits by the time of day at which a slice begins, in UTC or in a zone.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitsOfDay {
    list: &'static DayLimits,
    /// The limit of a request's own quota, all day.
    own: Option<u64>,
    #[cfg(feature = "calendar")]
    zone: Option<&'static TimeZone>,
    /// The microseconds of a slice.
    slice: i64,
    /// The soft share.
    percent: u64,
    class: Priority,
    debt: u64,
}

/// The limit of slice `begin` and of those after it that are before `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    begin: i64,
    pub limit: u64,
    pub(super) end: i64,
}

impl Limits {
    /// The limits of a valid quota with its soft share, in slices of this many microseconds.
    pub(super) fn of(quota: &Quota, slice: u64) -> Self {
        match quota.varying_limits() {
            None => Self::Same(quota.capacity() + quota.extra()),
            Some(list) => Self::OfDay(LimitsOfDay {
                list,
                own: quota.own_capacity(),
                #[cfg(feature = "calendar")]
                zone: quota.varying_zone().map(crate::quota::kept_zone),
                slice: slice as i64,
                percent: quota.soft_percent().into(),
                class: Priority::CRITICAL,
                debt: 0,
            }),
        }
    }

    /// The part of the limits that a class may use; `extra` is the soft share, which is for critical requests.
    pub(super) fn part(self, class: Priority, extra: u64) -> Self {
        match self.nominal(extra) {
            Self::Same(limit) => Self::Same(class.part_of(limit)),
            Self::OfDay(day) => Self::OfDay(LimitsOfDay { class, ..day }),
        }
    }

    /// The limits without their soft share.
    pub(super) const fn nominal(self, extra: u64) -> Self {
        match self {
            Self::Same(limit) => Self::Same(limit - extra),
            Self::OfDay(day) => Self::OfDay(LimitsOfDay { percent: 0, ..day }),
        }
    }

    pub(super) const fn plus(self, debt: u64) -> Self {
        match self {
            Self::Same(limit) => Self::Same(limit + debt),
            Self::OfDay(day) => Self::OfDay(LimitsOfDay { debt, ..day }),
        }
    }

    /// The nominal limits of all requests, if they vary.
    pub(super) fn of_all(self) -> Option<Self> {
        let critical = || self.part(Priority::CRITICAL, 0);
        self.vary().then(critical)
    }

    pub(super) const fn vary(&self) -> bool {
        matches!(self, Self::OfDay(_))
    }

    #[inline(always)]
    pub(super) fn run(&self, index: i64) -> Run {
        match self {
            Self::Same(limit) => Run {
                begin: index,
                limit: *limit,
                end: i64::MAX,
            },
            Self::OfDay(day) => day.run(index),
        }
    }

    #[inline(always)]
    pub(super) fn at(&self, index: u64) -> u64 {
        self.run(index as i64).limit
    }

    /// The runs of equal limits from a slice on.
    fn runs(&self, mut index: i64) -> impl Iterator<Item = Run> {
        iter::from_fn(move || {
            let run = self.run(index);
            index = run.end;
            Some(run)
        })
    }

    /// The sum of the limits from the begin of a run until just before a slice, and the run of that slice.
    pub(super) fn sum(&self, first: Run, to: i64) -> (i128, Run) {
        let (mut run, mut sum) = (first, 0);
        while run.end <= to {
            sum += i128::from(run.end - run.begin) * i128::from(run.limit);
            run = self.run(run.end);
        }
        (
            sum + i128::from(to - run.begin) * i128::from(run.limit),
            run,
        )
    }

    pub(super) fn most(&self) -> u64 {
        match self {
            Self::Same(limit) => *limit,
            Self::OfDay(day) => {
                day.part_of(day.list.iter().map(|(_, limit)| *limit).max().unwrap_or(0))
            }
        }
    }

    /// The first window after this one in which `cost` fits, if it fits into any.
    pub(super) fn first_with(&self, cost: u64, index: u64) -> Option<u64> {
        if cost > self.most() {
            return None;
        }
        let first = self.runs(index as i64 + 1).find(|run| run.limit >= cost);
        first.map(|run| run.begin as u64)
    }

    /// The first slice that a wait from slice `now` on does not reach, in a window of so many slices. Every day is
    /// like the next; in a zone one of two days is, since clocks are not set twice in two days.
    pub(super) const fn end_of_waits(&self, now: i64, slices: i64) -> i64 {
        match self {
            // From the next slice on one more than a window has, which count nothing then.
            Self::Same(_) => now + slices + 3,
            Self::OfDay(day) => now + 2 * (DAY_MICROS / day.slice + slices) + 1,
        }
    }
}

impl LimitsOfDay {
    /// The part of a limit that counts. No limit is above 2^32.
    fn part_of(&self, limit: u64) -> u64 {
        let limit = self.own.unwrap_or(limit);
        self.class.part_of(limit) + limit * self.percent / 100 + self.debt
    }

    fn run(&self, index: i64) -> Run {
        let begin = index.saturating_mul(self.slice);
        let (ahead, clocks_are_set) = (0, i64::MAX);
        #[cfg(feature = "calendar")]
        let (ahead, clocks_are_set) =
            (self.zone).map_or((ahead, clocks_are_set), |zone| self.offset(zone, begin));
        let time = (begin + ahead).rem_euclid(DAY_MICROS);
        let micros = |time: TimeOfDay| i64::from(time.seconds().unwrap_or(0)) * 1_000_000;
        let next = self.list.partition_point(|(at, _)| micros(*at) <= time);
        let until = self.list.get(next);
        let end = until.map_or(DAY_MICROS, |(at, _)| micros(*at));
        Run {
            begin: index,
            limit: self.part_of(self.list[next - 1].1),
            end: (index + (end - time + self.slice - 1) / self.slice).min(clocks_are_set),
        }
    }

    /// The microseconds that the zone is ahead of UTC at an instant, and the first slice after its clocks are set next.
    #[cfg(feature = "calendar")]
    fn offset(&self, zone: &TimeZone, begin: i64) -> (i64, i64) {
        let at = Timestamp::from_microsecond(begin).unwrap_or(Timestamp::MAX);
        let ahead = i64::from(zone.to_offset(at).seconds()) * 1_000_000;
        let set = zone.following(at).next();
        let set = set.map(|set| -(-set.timestamp().as_microsecond()).div_euclid(self.slice));
        (ahead, set.unwrap_or(i64::MAX))
    }
}

/// The nanosecond at which the least limit of a day comes into force for the first time; `None` if the limit is
/// the same all day.
pub fn least_limit_begins(quota: &Quota) -> Option<u64> {
    let slice = quota.slice_nanos();
    let limits = Limits::of(quota, slice / 1_000).of_all()?;
    let day = quota.varying_limits()?.iter();
    let least = day.map(|(_, limit)| *limit).min()?;
    let first = limits.runs(0).find(|run| run.limit <= least)?;
    Some((first.begin as u64).saturating_mul(slice))
}
