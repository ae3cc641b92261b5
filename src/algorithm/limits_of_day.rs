//! The limits of a quota that varies by the time of day.

use super::limits_in_zone::LimitsInZone;
use crate::quota::{DayLimits, Priority, Quota};

const DAY_MICROS: u64 = 86_400_000_000;

/// How many days sliding windows count their slices ahead of the epoch, since those before it have the times
/// of a day, too: one more than a window has slices.
const DAYS_AHEAD: u64 = 1_001;

/// The limits by the index of a window or slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitsOfDay {
    list: Limits,
    part: LimitPart,
    /// Microseconds of a slice, which divide a day.
    pub(super) slice: u64,
    /// The slices of a sliding window; 0 for a fixed one. With this instead of a window a meter is no larger than
    /// without limits that vary.
    pub(super) slices: u32,
}

#[derive(Debug, Clone, Copy)]
enum Limits {
    Day(&'static DayLimits),
    Zone(&'static LimitsInZone),
    /// The limit of a request's own quota, all day.
    One(u64),
}

/// The part of each limit that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitPart {
    Nominal,
    /// The limit and its soft share in percent, at most 1,000.
    Soft(u16),
    /// The part that a class of requests may use.
    Class(Priority),
}

/// The slices around one of them that have its limit: they begin and end with an entry, a day or a shift of
/// the zone.
#[derive(Debug, Clone, Copy)]
struct EntryRun {
    /// The slices before this one.
    before: u64,
    /// The slices from this one on.
    left: u64,
    limit: u64,
}

impl LimitsOfDay {
    /// The limits of a quota, with its soft share, in slices of this many microseconds. A sliding window has
    /// this many slices, a fixed one 0.
    pub(super) fn of(
        quota: &Quota,
        limits: &'static DayLimits,
        (slice, slices): (u64, u32),
    ) -> Self {
        let ahead = match slices {
            0 => 0,
            _ => DAYS_AHEAD * (DAY_MICROS / slice),
        };
        let zone = || LimitsInZone::of(quota, limits, (slice, ahead));
        Self {
            list: match quota.own_capacity() {
                Some(own) => Limits::One(own),
                None => zone().map_or(Limits::Day(limits), Limits::Zone),
            },
            part: LimitPart::Soft(quota.soft_percent() as u16),
            slice,
            slices,
        }
    }

    pub(super) const fn with(self, part: LimitPart) -> Self {
        Self { part, ..self }
    }

    /// The limits without the soft share.
    pub(super) const fn nominal(self) -> Self {
        match self.part {
            LimitPart::Nominal | LimitPart::Class(_) => self,
            LimitPart::Soft(_) => self.with(LimitPart::Nominal),
        }
    }

    const fn part_of(&self, limit: u64) -> u64 {
        match self.part {
            LimitPart::Nominal => limit,
            // No limit is above 2^32.
            LimitPart::Soft(percent) => limit + limit * percent as u64 / 100,
            LimitPart::Class(class) => class.part_of(limit),
        }
    }

    /// The slices of a day.
    pub(super) const fn day(&self) -> u64 {
        DAY_MICROS / self.slice
    }

    /// The index of a slice in a sliding window's search for its limits.
    pub(super) const fn ahead(&self, index: u64) -> u64 {
        index + DAYS_AHEAD * self.day()
    }

    fn run(&self, index: u64) -> EntryRun {
        match self.list {
            Limits::Day(limits) => self.run_of_day(limits, index),
            Limits::Zone(zone) => self.run_in_zone(zone, index),
            Limits::One(limit) => {
                let before = index % self.day();
                EntryRun {
                    before,
                    left: self.day() - before,
                    limit: self.part_of(limit),
                }
            }
        }
    }

    fn run_of_day(&self, limits: &DayLimits, index: u64) -> EntryRun {
        let slot = index % self.day();
        let next = self.next_entry(limits, slot);
        EntryRun {
            before: slot - begin_of(limits, next - 1).unwrap_or(0) / self.slice,
            left: begin_of(limits, next).unwrap_or(DAY_MICROS) / self.slice - slot,
            limit: self.part_of(limits[next - 1].1),
        }
    }

    /// The place of the first entry after a slice of the day.
    fn next_entry(&self, limits: &DayLimits, slot: u64) -> usize {
        let at = slot * self.slice;
        let is_later = |place: &usize| begin_of(limits, *place).is_some_and(|begin| begin > at);
        (1..limits.len()).find(is_later).unwrap_or(limits.len())
    }

    /// The run by the civil time at which the slice begins.
    #[cold]
    fn run_in_zone(&self, zone: &LimitsInZone, index: u64) -> EntryRun {
        let span = zone.span(index);
        // A day more, so that a zone west of UTC never leads before the first slice.
        let civil = (index + self.day()).wrapping_add_signed(span.shift);
        let run = self.run_of_day(zone.limits(), civil);
        EntryRun {
            before: run.before.min(index - span.begin),
            left: run.left.min(span.end - index),
            ..run
        }
    }

    /// L of a slice.
    pub(super) fn at(&self, index: u64) -> u64 {
        match self.list {
            Limits::Day(limits) => {
                let next = self.next_entry(limits, index % self.day());
                self.part_of(limits[next - 1].1)
            }
            Limits::Zone(_) | Limits::One(_) => self.run(index).limit,
        }
    }

    /// The sum of L over this many slices before one.
    pub(super) fn sum_before(&self, index: u64, slices: u64) -> u64 {
        let (mut sum, mut left, mut end) = (0, slices, index);
        while left > 0 {
            let run = self.run(end - 1);
            let here = (run.before + 1).min(left);
            sum += here * run.limit;
            (left, end) = (left - here, end - here);
        }
        sum
    }

    /// The first slice after this one at which another entry begins, or at which the zone's clocks are set.
    pub(super) fn next_change(&self, index: u64) -> u64 {
        index + self.run(index).left
    }

    pub(super) fn most(&self) -> u64 {
        let most_of =
            |limits: &DayLimits| limits.iter().map(|(_, limit)| *limit).max().unwrap_or(0);
        let limit = match self.list {
            Limits::Day(limits) => most_of(limits),
            Limits::Zone(zone) => most_of(zone.limits()),
            Limits::One(limit) => limit,
        };
        self.part_of(limit)
    }

    /// The first slice that a wait from `now` does not reach, if nothing is counted from `index` on. Every day
    /// is like the next; in a zone one of two days is, since clocks are not set twice in two days.
    pub(super) fn end_of_waits(&self, index: u64, now: u64, slices: u64) -> u64 {
        match self.list {
            Limits::Zone(_) => now / 1_000 / self.slice + 2 * (self.day() + slices) + 1,
            Limits::Day(_) | Limits::One(_) => index + self.day(),
        }
    }

    /// The first slice from this one on with the least limit.
    pub(super) fn first_with_least(&self, mut index: u64) -> u64 {
        let least_of =
            |limits: &DayLimits| limits.iter().map(|(_, limit)| *limit).min().unwrap_or(0);
        let least = self.part_of(match self.list {
            Limits::Day(limits) => least_of(limits),
            Limits::Zone(zone) => least_of(zone.limits()),
            Limits::One(limit) => limit,
        });
        while self.at(index) > least {
            index = self.next_change(index);
        }
        index
    }

    /// The first window after this one in which `cost` fits, if it fits into any.
    pub(super) fn first_with(&self, cost: u64, index: u64) -> Option<u64> {
        if cost > self.most() {
            return None;
        }
        let mut index = index + 1;
        while self.at(index) < cost {
            index = self.next_change(index);
        }
        Some(index)
    }
}

/// The microseconds since midnight at which an entry begins; `None` after the last one.
fn begin_of(limits: &DayLimits, place: usize) -> Option<u64> {
    let (time, _) = limits.get(place)?;
    Some(u64::from(time.seconds()?) * 1_000_000)
}
