//! The judge: checks the times of admitted units against the bound of each algorithm.

use std::{collections::VecDeque, time::Duration};

use tower_ratelimit::{Priority, clock::Timestamp};

use super::limit::{Counts, Limit, Rule};

/// The admissions of one key, against each rule of a limit.
#[derive(Debug)]
pub struct Judge(Vec<Admitted>);

/// The admissions that can still count by one rule.
#[derive(Debug)]
struct Admitted {
    rule: Rule,
    /// The slices in force, or the instants, in nanoseconds, and how many units each has.
    recent: VecDeque<(u64, u64)>,
    /// The units of all those.
    units: u64,
    /// The instant at which the bucket is full.
    full_at: u64,
}

impl Judge {
    pub fn new(limit: &Limit) -> Self {
        Self::of_rules(limit.rules())
    }

    /// Judges the units of a class and all below it. Those of the classes above do not count: nodes spend
    /// reserved units in another order than the store reserved them.
    pub(super) fn of_class(limit: &Limit, class: Priority) -> Self {
        Self::of_rules(limit.part(class))
    }

    fn of_rules(rules: impl Iterator<Item = Rule>) -> Self {
        let admitted = |rule: Rule| Admitted {
            rule,
            recent: VecDeque::new(),
            units: 0,
            full_at: 0,
        };
        Self(rules.map(admitted).collect())
    }

    /// Adds admitted units, no earlier than the previous ones. Returns how many units they are above the
    /// bound.
    pub fn admit(&mut self, at: Timestamp, units: u64) -> u64 {
        let now = at.as_micros() * 1_000;
        let excess = self.0.iter_mut().map(|by| by.admit(now, units));
        excess.max().unwrap_or(0)
    }

    /// Adds units if they are within the bound. Returns whether they are.
    pub(super) fn try_admit(&mut self, at: Timestamp, units: u64) -> bool {
        let fits = self.admit(at, units) == 0;
        if !fits {
            self.0.iter_mut().for_each(|by| by.take_back(units));
        }
        fits
    }
}

impl Admitted {
    fn admit(&mut self, now: u64, units: u64) -> u64 {
        let Rule {
            counts,
            limit,
            period,
            counted: most,
            capacity,
        } = self.rule;
        let period = nanos(period);
        let counted = match counts {
            Counts::Bucket(step) => {
                let interval = period / limit;
                let filled_at = now - now % step.map_or(1, nanos);
                self.full_at = self.full_at.max(filled_at) + units * interval;
                let used = (self.full_at - filled_at).div_ceil(interval);
                return used.saturating_sub(capacity);
            }
            Counts::Slices(slices) => self.slide(now, period, u64::from(slices), units),
            Counts::Log => self.count(now, (now + 1).saturating_sub(period), units),
            Counts::Window => self.count(now / period, now / period, units),
        };
        counted.saturating_sub(most)
    }

    /// Removes the units that were added last.
    fn take_back(&mut self, units: u64) {
        let Rule {
            counts,
            limit,
            period,
            ..
        } = self.rule;
        if let Counts::Bucket(_) = counts {
            self.full_at -= units * (nanos(period) / limit);
        } else if let Some((_, counted)) = self.recent.back_mut() {
            *counted -= units;
            self.units -= units;
        }
    }

    /// Adds units to a place. Returns the sum from the place `from` on.
    fn count(&mut self, place: u64, from: u64, units: u64) -> u64 {
        match self.recent.back_mut() {
            Some((last, counted)) if *last == place => *counted += units,
            _ => self.recent.push_back((place, units)),
        }
        self.units += units;
        while let Some((oldest, counted)) = self.recent.front()
            && *oldest < from
        {
            self.units -= counted;
            self.recent.pop_front();
        }
        self.units
    }

    /// The units of the current slices, and the part of the one before that is still in the window.
    fn slide(&mut self, now: u64, period: u64, slices: u64, units: u64) -> u64 {
        let slice = period / slices;
        let newest = now / slice;
        let before = newest.saturating_sub(slices);
        let all = self.count(newest, before, units);
        let oldest = self.recent.front().filter(|(at, _)| *at == before);
        let oldest = oldest.map_or(0, |(_, units)| *units);
        let left = slice - now % slice;
        all - oldest + oldest * left / slice
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than centuries")
}
