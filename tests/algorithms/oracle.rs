//! The algorithms as their definitions say, in the plainest way: a bucket has a level, a log has
//! one entry for each unit, counters of all windows stay in a map. What takes arithmetic in the
//! crate (how long until a cost fits, until a key is as good as new) is searched for here.

use std::collections::BTreeMap;

use tower_ratelimit::{Algorithm, Quota};

/// Nanoseconds since the epoch, and spans of them.
pub(crate) type Nanos = i128;

/// One quota of one key.
#[derive(Debug, Clone)]
pub(crate) struct Naive {
    pub(crate) quota: Quota,
    /// The most that can be available, and how much of that is soft.
    pub(crate) capacity: i128,
    pub(crate) extra: i128,
    /// T.
    pub(crate) interval: Nanos,
    period: Nanos,
    step: Nanos,
    slices: i128,
    /// By how much a bucket may be overdrawn before that is taken for a clock that stepped back.
    tolerance: Nanos,
    memory: Memory,
}

/// What is remembered. Quantities that depend on the time are as they were at some instant.
#[derive(Debug, Clone)]
enum Memory {
    /// A level in nanoseconds of refill, `at` an instant.
    Level { level: Nanos, at: Nanos },
    /// The next free slot.
    Slot(Nanos),
    /// What was counted in each window or slice; the last one is the newest.
    Counts(BTreeMap<i128, i128>),
    /// When each unit was admitted, oldest first.
    Times(Vec<Nanos>),
}

/// What is not part of a quota's public face.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    pub(crate) soft_percent: u32,
    pub(crate) refill_every: Option<Nanos>,
    pub(crate) slices: u32,
}

impl Naive {
    /// `lock_free` is the limiter with one bucket and nothing else. There a thread may have read
    /// the clock long before it gets to the key: an overdraft of up to a second, or of one more
    /// full bucket, is left alone.
    pub(crate) fn new(quota: Quota, extras: Extras, lock_free: bool) -> Self {
        let nominal = i128::from(quota.capacity());
        let extra = nominal * i128::from(extras.soft_percent) / 100;
        let period = i128::try_from(quota.period().as_nanos()).expect("in range");
        let interval = period / i128::from(quota.limit());
        let full = interval * (nominal + extra);
        let mut naive = Self {
            quota,
            capacity: nominal + extra,
            extra,
            interval,
            period,
            step: extras.refill_every.unwrap_or(1),
            slices: i128::from(extras.slices.max(1)),
            tolerance: if lock_free {
                full.max(1_000_000_000)
            } else {
                0
            },
            memory: Memory::Slot(0),
        };
        naive.reset();
        naive
    }

    /// As good as new.
    pub(crate) fn reset(&mut self) {
        self.memory = match self.quota.algorithm() {
            Algorithm::TokenBucket => Memory::Level {
                level: self.full(),
                at: Nanos::MIN / 2,
            },
            Algorithm::LeakyBucket { .. } => Memory::Slot(Nanos::MIN / 2),
            Algorithm::FixedWindow | Algorithm::SlidingWindow => Memory::Counts(BTreeMap::new()),
            Algorithm::SlidingLog => Memory::Times(Vec::new()),
            other => panic!("{other:?} has no oracle"),
        };
    }

    /// The time in which a bucket fills, or a queue empties.
    fn full(&self) -> Nanos {
        self.capacity * self.interval
    }

    /// The last step at which tokens came.
    fn stepped(&self, now: Nanos) -> Nanos {
        now.div_euclid(self.step) * self.step
    }

    /// The length of a window or slice, and the number of now's.
    fn slice(&self, now: Nanos) -> (Nanos, i128) {
        let length = match self.quota.algorithm() {
            Algorithm::FixedWindow => self.period,
            _ => self.period / self.slices,
        };
        (length, now.div_euclid(length))
    }

    /// The number of the window or slice in force, and how much of it has passed: one that is one
    /// ahead of now's has not begun, and stays in force.
    fn in_force(&self, counts: &BTreeMap<i128, i128>, now: Nanos) -> (i128, Nanos) {
        let (length, index) = self.slice(now);
        match counts.last_key_value() {
            Some((newest, _)) if *newest > index => (*newest, 0),
            _ => (index, now - index * length),
        }
    }

    fn level(&self, now: Nanos) -> Nanos {
        let Memory::Level { level, at } = self.memory else {
            panic!("{:?} has no level", self.memory)
        };
        (level + (self.stepped(now) - at)).min(self.full())
    }

    /// What is left after a clock that stepped back.
    pub(crate) fn heal(&mut self, now: Nanos) {
        let (full, tolerance) = (self.full(), self.tolerance);
        let (_, index) = self.slice(now);
        let overdraft = match &self.memory {
            Memory::Level { .. } => -self.level(now),
            _ => 0,
        };
        let stepped = self.stepped(now);
        match &mut self.memory {
            Memory::Level { level, at } if overdraft > tolerance => (*level, *at) = (0, stepped),
            Memory::Level { .. } => {}
            Memory::Slot(next) if *next - now > full + tolerance => *next = now + full,
            Memory::Slot(_) => {}
            Memory::Counts(counts) => {
                // More than one ahead moves to now's, and those before it move along.
                let newest = counts.last_key_value().map_or(index, |(newest, _)| *newest);
                if newest > index + 1 {
                    let moved = counts.iter().map(|(i, count)| (i - newest + index, *count));
                    *counts = moved.collect();
                }
            }
            Memory::Times(times) if times.last().is_some_and(|newest| *newest > now) => {
                times.retain(|time| *time > now - self.period);
                times.iter_mut().for_each(|time| *time = (*time).min(now));
            }
            Memory::Times(_) => {}
        }
    }

    /// Whether `cost` is admitted: the definition's column "admit iff".
    pub(crate) fn admits(&self, now: Nanos, cost: u64) -> bool {
        let cost = i128::from(cost);
        if cost == 0 {
            return true;
        }
        match &self.memory {
            Memory::Level { .. } => cost * self.interval <= self.level(now),
            Memory::Slot(_) => self.slot(now, cost) - now <= (self.capacity - 1) * self.interval,
            Memory::Counts(_) | Memory::Times(_) => self.used(now) + cost <= self.capacity,
        }
    }

    /// The slot of the last of `cost` units in a queue.
    fn slot(&self, now: Nanos, cost: i128) -> Nanos {
        let Memory::Slot(next) = self.memory else {
            panic!("{:?} has no slots", self.memory)
        };
        next.max(now) + (cost - 1) * self.interval
    }

    /// How long an admitted cost waits in the queue.
    pub(crate) fn wait(&self, now: Nanos, cost: u64) -> Nanos {
        match self.memory {
            Memory::Slot(_) if cost > 0 => self.slot(now, i128::from(cost)) - now,
            _ => 0,
        }
    }

    /// What counts against the limit of a window or log.
    fn used(&self, now: Nanos) -> i128 {
        match &self.memory {
            Memory::Counts(counts) => {
                let (newest, passed) = self.in_force(counts, now);
                if self.quota.algorithm() == Algorithm::FixedWindow {
                    return counts.get(&newest).copied().unwrap_or(0);
                }
                let (length, _) = self.slice(now);
                let oldest = newest - self.slices;
                let whole: i128 = counts.range(oldest + 1..).map(|(_, count)| count).sum();
                let weighed = counts.get(&oldest).copied().unwrap_or(0) * (length - passed);
                whole + weighed.div_euclid(length)
            }
            Memory::Times(times) => {
                let gone = times.partition_point(|time| *time <= now - self.period);
                i128::try_from(times.len() - gone).expect("few")
            }
            other => panic!("{other:?} counts nothing"),
        }
    }

    /// The most that fits, soft share included.
    pub(crate) fn available(&self, now: Nanos) -> i128 {
        match &self.memory {
            Memory::Level { .. } => self.level(now).max(0).div_euclid(self.interval),
            Memory::Slot(next) => {
                let booked = (next - now).max(0);
                // A slot that has begun is as good as taken.
                (self.capacity + (-booked).div_euclid(self.interval)).max(0)
            }
            Memory::Counts(_) | Memory::Times(_) => (self.capacity - self.used(now)).max(0),
        }
    }

    /// Takes `cost`, down to exhaustion and no further.
    pub(crate) fn take(&mut self, now: Nanos, cost: u64) {
        let fits = i128::from(cost).min(self.available(now));
        let spent = i128::from(cost) * self.interval;
        match &self.memory {
            Memory::Level { .. } => {
                let level = self.level(now);
                // What is overdrawn stays so, and nothing else gets there.
                self.set_level(now, (level - spent).max(level.min(0)));
            }
            Memory::Slot(next) => {
                let booked = (*next).max(now) + spent;
                self.memory = Memory::Slot(booked.min(now + self.full()).max(*next));
            }
            Memory::Counts(_) => self.change_count(now, now, fits),
            Memory::Times(_) => self.note(now, fits),
        }
    }

    fn set_level(&mut self, now: Nanos, level: Nanos) {
        // A level that did not change is not kept: that of an idle key is full at any time.
        if level != self.level(now) {
            let at = self.stepped(now);
            self.memory = Memory::Level { level, at };
        }
    }

    /// Adds to the window or slice in force, or takes away from the one that holds `charged_at`,
    /// which is not always the one that was in force then: after a step back it may be the one
    /// before, and where only one is kept the refund is lost.
    fn change_count(&mut self, now: Nanos, charged_at: Nanos, by: i128) {
        let (_, holder) = self.slice(charged_at);
        let fixed = self.quota.algorithm() == Algorithm::FixedWindow;
        let kept = if fixed { 0 } else { self.slices };
        let Memory::Counts(mut counts) = std::mem::replace(&mut self.memory, Memory::Slot(0))
        else {
            panic!("it counts nothing")
        };
        let (newest, _) = self.in_force(&counts, now);
        counts.entry(newest).or_insert(0);
        counts.retain(|index, _| *index >= newest - kept);
        let index = if by >= 0 { newest } else { holder };
        if let Some(count) = counts.get_mut(&index) {
            *count = (*count + by).max(0);
        }
        // Nothing counted is as good as new.
        if counts.values().all(|count| *count == 0) {
            counts.clear();
        }
        self.memory = Memory::Counts(counts);
    }

    fn note(&mut self, now: Nanos, units: i128) {
        let Memory::Times(times) = &mut self.memory else {
            panic!("it keeps no log")
        };
        // What has left is forgotten, even if the clock steps back after this.
        times.retain(|time| *time > now - self.period);
        times.extend((0..units).map(|_| now));
    }

    pub(crate) fn refund(&mut self, now: Nanos, cost: u64, charged_at: Nanos) {
        let units = i128::from(cost);
        match &mut self.memory {
            Memory::Level { .. } => {
                let level = self.level(now) + units * self.interval;
                self.set_level(now, level.min(self.full()));
            }
            Memory::Slot(next) => {
                let freed = *next - units * self.interval;
                *next = freed.max(now).min(*next);
            }
            Memory::Counts(_) => self.change_count(now, charged_at, -units),
            Memory::Times(times) => {
                times.retain(|time| *time > now - self.period);
                // What has left the window was given back by that.
                let gone = charged_at <= now - self.period;
                for _ in 0..units.min(times.len() as i128 * i128::from(!gone)) {
                    let stamped = times.iter().position(|time| *time == charged_at);
                    times.remove(stamped.unwrap_or(times.len() - 1));
                }
            }
        }
    }

    /// The first span of whole microseconds after which `passes` holds, if it ever does. What
    /// nobody adds to only gets better, so half of what is left can be ruled out at each look.
    fn first(&self, now: Nanos, passes: impl Fn(Nanos) -> bool) -> Option<Nanos> {
        if passes(now) {
            return Some(0);
        }
        let longest = 4 * (self.period + self.full() + self.step + self.tolerance);
        let (mut early, mut late) = (0, longest / 1_000 + 4);
        if !passes(now + late * 1_000) {
            return None;
        }
        while late - early > 1 {
            let between = (early + late).div_euclid(2);
            if passes(now + between * 1_000) {
                late = between;
            } else {
                early = between;
            }
        }
        Some(late * 1_000)
    }

    /// `None` when the cost never fits.
    pub(crate) fn retry_after(&self, now: Nanos, cost: u64) -> Option<Nanos> {
        self.first(now, |at| self.admits(at, cost))
    }

    /// The time until all of it is available.
    pub(crate) fn reset_after(&self, now: Nanos) -> Nanos {
        self.first(now, |at| self.available(at) == self.capacity)
            .expect("what was taken comes back")
    }

    /// Units of the nominal limit that are left.
    pub(crate) fn remaining(&self, now: Nanos) -> i128 {
        (self.available(now) - self.extra).max(0)
    }

    /// `t` of an admitted request: see the definition of the headers.
    pub(crate) fn effective_window(&self, now: Nanos) -> Nanos {
        let remaining = self.remaining(now);
        match &self.memory {
            Memory::Counts(counts) if self.quota.algorithm() == Algorithm::FixedWindow => {
                let (newest, _) = self.in_force(counts, now);
                (newest + 1) * self.period - now
            }
            _ if remaining > 0 => remaining * self.interval,
            _ => self
                .first(now, |at| self.available(at) > self.extra)
                .expect("one unit comes back"),
        }
    }
}
