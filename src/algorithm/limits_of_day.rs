//! The limits of a quota that varies by the time of day.

use crate::quota::{DayLimits, Priority, Quota};

const DAY_MICROS: u64 = 86_400_000_000;

/// The limits by the index of a window or slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitsOfDay {
    list: Limits,
    part: LimitPart,
    /// Microseconds of a slice, which divide a day.
    pub(super) slice: u64,
}

#[derive(Debug, Clone, Copy)]
enum Limits {
    Day(&'static DayLimits),
    /// The limit of a request's own quota, all day.
    One(u64),
}

/// The part of each limit that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitPart {
    Nominal,
    /// The limit and its soft share in percent.
    Soft(u32),
    /// The part that a class of requests may use.
    Class(Priority),
}

/// The slices of a day with one limit.
#[derive(Debug, Clone, Copy)]
struct EntryRun {
    begin: u64,
    end: u64,
    limit: u64,
}

impl LimitsOfDay {
    /// The limits of a quota, with its soft share, in slices of this many microseconds.
    pub(super) fn of(quota: &Quota, limits: &'static DayLimits, slice: u64) -> Self {
        Self {
            list: match quota.own_capacity() {
                Some(own) => Limits::One(own),
                None => Limits::Day(limits),
            },
            part: LimitPart::Soft(quota.soft_percent()),
            slice,
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

    fn run(&self, index: u64) -> EntryRun {
        let limits = match self.list {
            Limits::Day(limits) => limits,
            Limits::One(limit) => {
                return EntryRun {
                    begin: 0,
                    end: self.day(),
                    limit: self.part_of(limit),
                };
            }
        };
        let at = index % self.day() * self.slice;
        let begin_of = |place: usize| {
            let (time, _) = limits.get(place)?;
            Some(u64::from(time.seconds()?) * 1_000_000)
        };
        let later =
            (1..limits.len()).find(|place| begin_of(*place).is_some_and(|begin| begin > at));
        let next = later.unwrap_or(limits.len());
        EntryRun {
            begin: begin_of(next - 1).unwrap_or(0) / self.slice,
            end: begin_of(next).unwrap_or(DAY_MICROS) / self.slice,
            limit: self.part_of(limits[next - 1].1),
        }
    }

    /// L of a slice.
    pub(super) fn at(&self, index: u64) -> u64 {
        self.run(index).limit
    }

    /// The sum of L over this many slices before one.
    pub(super) fn sum_before(&self, index: u64, slices: u64) -> u64 {
        let (mut sum, mut left, mut end) = (0, slices, index);
        while left > 0 {
            let run = self.run(end - 1);
            let here = ((end - 1) % self.day() - run.begin + 1).min(left);
            sum += here * run.limit;
            (left, end) = (left - here, end - here);
        }
        sum
    }

    /// The first slice after this one at which another entry begins.
    pub(super) fn next_change(&self, index: u64) -> u64 {
        index + self.run(index).end - index % self.day()
    }

    pub(super) fn most(&self) -> u64 {
        let limit = match self.list {
            Limits::Day(limits) => limits.iter().map(|(_, limit)| *limit).max().unwrap_or(0),
            Limits::One(limit) => limit,
        };
        self.part_of(limit)
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
