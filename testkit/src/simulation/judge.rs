//! The judge: knows when units were admitted and nothing else, and the bound of each algorithm.

use std::{collections::VecDeque, time::Duration};

use tower_ratelimit::Timestamp;

use super::limit::{Counts, Limit, Rule};

/// The admissions of one key, against each rule of a limit.
#[derive(Debug)]
pub struct Judge(Vec<Admitted>);

/// The admissions as far as they can still count, by one rule.
#[derive(Debug)]
struct Admitted {
    rule: Rule,
    /// When, in nanoseconds, and how many units.
    recent: VecDeque<(u64, u64)>,
    /// When the bucket is full again.
    full_at: u64,
}

impl Judge {
    pub fn new(limit: &Limit) -> Self {
        let admitted = |rule: &Rule| Admitted {
            rule: *rule,
            recent: VecDeque::new(),
            full_at: 0,
        };
        Self(limit.rules().iter().map(admitted).collect())
    }

    /// Notes units that were admitted, no earlier than those before; by how many units they are
    /// more than may be admitted until then.
    pub fn admit(&mut self, at: Timestamp, units: u64) -> u64 {
        let now = at.as_micros() * 1_000;
        let excess = self.0.iter_mut().map(|by| by.admit(now, units));
        excess.max().unwrap_or(0)
    }
}

impl Admitted {
    fn admit(&mut self, now: u64, units: u64) -> u64 {
        let Rule {
            counts,
            limit,
            period,
            capacity,
        } = self.rule;
        if let Counts::Bucket(step) = counts {
            let interval = nanos(period) / limit;
            let filled_at = now - now % step.map_or(1, nanos);
            self.full_at = self.full_at.max(filled_at) + units * interval;
            let used = (self.full_at - filled_at).div_ceil(interval);
            return used.saturating_sub(capacity);
        }
        self.recent.push_back((now, units));
        let period = nanos(period);
        while let Some((at, _)) = self.recent.front()
            && *at + 3 * period < now
        {
            self.recent.pop_front();
        }
        let counted = match counts {
            Counts::Slices(slices) => self.weighted(now, period, u64::from(slices)),
            Counts::Log => self.since((now + 1).saturating_sub(period)),
            _ => self.since(now - now % period),
        };
        counted.saturating_sub(limit)
    }

    /// The units since then.
    fn since(&self, from: u64) -> u64 {
        let recent = self.recent.iter().filter(|(at, _)| *at >= from);
        recent.map(|(_, units)| units).sum()
    }

    /// The units of the slices in force, and of the one before as much as is still in the window.
    fn weighted(&self, now: u64, period: u64, slices: u64) -> u64 {
        let slice = period / slices;
        let newest = now / slice;
        let whole = self.since((newest + 1).saturating_sub(slices) * slice);
        let oldest = self.since(newest.saturating_sub(slices) * slice) - whole;
        let left = slice - now % slice;
        whole + oldest * left / slice
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than centuries")
}
