//! The algorithms by their definition, in the plainest way: a bucket owes time, a log has one
//! entry for each unit, counters of all windows stay in a map. What takes arithmetic in the crate
//! (how long until a cost fits, until a key is as good as new) is searched for here.

pub mod calendar_windows;
pub mod random_quotas;
pub mod varying_limits;

use std::collections::BTreeMap;

use tower_ratelimit::{Quota, quota::Algorithm};

/// Nanoseconds since the epoch, and spans of them.
pub type Nanos = i128;

/// Long before any time.
pub const NEVER: Nanos = Nanos::MIN / 2;

/// The parts of a quota that its public face does not show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras {
    pub soft_percent: u32,
    pub debt: u64,
    pub refill_every: Option<Nanos>,
    pub slices: u32,
    pub civil: Option<calendar_windows::Civil>,
    /// The zone of a limit that varies.
    pub zone: Option<calendar_windows::Zone>,
}

/// The way of counting: quotas of one kind at one place of their tiers share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    algorithm: &'static str,
    period: Nanos,
    slices: i128,
    step: Nanos,
    /// The windows of a calendar, instead of those of the period.
    civil: Option<calendar_windows::Civil>,
    /// Whether the limit varies by the time of day.
    varies: bool,
}

/// A quota in numbers.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub quota: Quota,
    pub kind: Kind,
    /// The most that can be available, and how much of that is soft.
    pub capacity: i128,
    pub extra: i128,
    /// The soft share of any capacity, in percent.
    pub percent: i128,
    /// T.
    pub interval: Nanos,
    /// The most that the counter may hold, which larger quotas may share: time of a bucket, units
    /// of a window.
    pub most_time: Nanos,
    pub most_units: i128,
    /// These maxima without debts: the most that a request's own quota may hold.
    pub room_time: Nanos,
    pub room_units: i128,
    /// The units beyond the capacity that a key may owe.
    pub debt: i128,
    /// The units that a class of requests leaves to others; 0 for critical ones.
    pub floor: i128,
    /// By how much a bucket may be overdrawn before it is treated as a clock that stepped back.
    pub tolerance: Nanos,
    /// The limits of a day.
    pub varying: Option<varying_limits::Varying>,
}

/// The count of a key. Quantities that depend on the time are as they were at some instant.
#[derive(Debug, Clone)]
pub enum Counter {
    /// The time in which what was taken comes back, as it was at an instant.
    Debt { owed: Nanos, at: Nanos },
    /// The next free slot.
    Slot(Nanos),
    /// The units in each window or slice; the last one is the newest.
    Counts(BTreeMap<i128, i128>),
    /// When each unit was admitted, oldest first.
    Times(Vec<Nanos>),
}

/// A charge that is given back.
#[derive(Debug, Clone, Copy)]
pub struct Charge {
    pub at: Nanos,
    /// The end of a bucket's debt after the charge.
    pub end: Nanos,
    /// T at that time.
    pub interval: Nanos,
}

impl Kind {
    fn new(quota: &Quota, extras: Extras) -> Self {
        let algorithm = match quota.algorithm() {
            Algorithm::TokenBucket => "token",
            Algorithm::LeakyBucket { .. } => "leaky",
            Algorithm::FixedWindow => "fixed",
            Algorithm::SlidingWindow => "sliding",
            Algorithm::SlidingLog => "log",
            other => panic!("{other:?} has no oracle"),
        };
        Self {
            algorithm,
            period: i128::try_from(quota.period().as_nanos()).expect("in range"),
            slices: i128::from(extras.slices.max(1)),
            step: extras.refill_every.unwrap_or(1),
            civil: extras.civil,
            varies: quota.varying_limits().is_some(),
        }
    }

    pub const fn period(&self) -> Nanos {
        self.period
    }

    pub fn is_bucket(&self) -> bool {
        matches!(self.algorithm, "token" | "leaky")
    }

    /// As good as new.
    pub fn fresh(&self) -> Counter {
        match self.algorithm {
            "token" => Counter::Debt { owed: 0, at: NEVER },
            "leaky" => Counter::Slot(NEVER),
            "fixed" | "sliding" => Counter::Counts(BTreeMap::new()),
            _ => Counter::Times(Vec::new()),
        }
    }

    /// The last step at which tokens came.
    fn stepped(&self, now: Nanos) -> Nanos {
        now.div_euclid(self.step) * self.step
    }

    /// The length of a window or slice, and the number of now's.
    fn slice(&self, now: Nanos) -> (Nanos, i128) {
        let length = self.period / self.slices;
        match self.civil {
            Some(civil) => (length, civil.window_at(now)),
            None => (length, now.div_euclid(length)),
        }
    }

    /// The end of a window.
    fn window_end(&self, index: i128) -> Nanos {
        match self.civil {
            Some(civil) => civil.begin(index + 1),
            None => (index + 1) * self.period,
        }
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

    /// How many windows before the one in force still count.
    fn kept(&self) -> i128 {
        if self.algorithm == "fixed" {
            0
        } else {
            self.slices
        }
    }
}

impl Rule {
    /// A quota that shares its counter with none.
    pub fn new(quota: Quota, extras: Extras) -> Self {
        let kind = Kind::new(&quota, extras);
        let nominal = i128::from(quota.capacity());
        let percent = i128::from(extras.soft_percent);
        let extra = nominal * percent / 100;
        let interval = kind.period / i128::from(quota.limit().max(1));
        let debt = i128::from(extras.debt);
        Self {
            quota,
            kind,
            capacity: nominal + extra,
            extra,
            percent,
            interval,
            most_time: interval * (nominal + extra + debt),
            most_units: nominal + extra + debt,
            room_time: interval * (nominal + extra),
            room_units: nominal + extra,
            debt,
            floor: 0,
            tolerance: 0,
            varying: varying_limits::Varying::of(&quota, extras.zone),
        }
    }

    /// The quota for requests that may use this share of it, in percent: of what it holds without a soft
    /// share, ⌈capacity · (100 − share) / 100⌉ have to remain, but one unit can be taken.
    pub fn for_class(mut self, share: u8) -> Self {
        if let Some(varying) = &mut self.varying {
            // Each of the limits is shared: what has to remain depends on the hour.
            varying.share = share;
            if share < 100 {
                self.extra = 0;
            }
        } else if share < 100 {
            let nominal = self.capacity - self.extra;
            let kept = nominal * i128::from(100 - share);
            let floor = (kept + 99).div_euclid(100);
            self.floor = floor.min((nominal - 1).max(0));
            (self.capacity, self.extra) = (nominal, 0);
        }
        self
    }

    /// The quota without the floor of a class.
    const fn without_floor(self) -> Self {
        Self { floor: 0, ..self }
    }

    /// How much of a capacity would be soft.
    pub const fn extra_of(&self, nominal: i128) -> i128 {
        nominal * self.percent / 100
    }

    /// The time in which a bucket fills, or a queue empties.
    pub fn full(&self) -> Nanos {
        self.capacity * self.interval
    }

    /// The time that a bucket may owe: that of its debt, too, as far as its counter holds it.
    pub fn full_with_debt(&self) -> Nanos {
        let full = (self.capacity + self.debt) * self.interval;
        full.min(self.most_time).max(self.full())
    }

    /// The debt of a window or log, as far as its counter holds it.
    fn debt_in_units(&self) -> i128 {
        self.debt.min(self.most_units - self.capacity).max(0)
    }

    /// The most that can be charged of units that were used already.
    pub fn spendable(&self, counter: &Counter, now: Nanos) -> i128 {
        let debt = self.debt_in_units();
        match counter {
            Counter::Slot(_) => self.available(counter, now),
            Counter::Debt { .. } => {
                let left = self.full_with_debt() - self.owed(counter, now);
                left.max(0).div_euclid(self.interval)
            }
            _ if self.varying.is_some() => (debt - self.balance(counter, now)).max(0),
            _ => (self.capacity + debt - self.used(counter, now)).max(0),
        }
    }

    /// Takes `cost` that was used already, down to the end of the debt.
    pub fn spend(&self, counter: &mut Counter, now: Nanos, cost: u64) {
        let fits = i128::from(cost).min(self.spendable(counter, now));
        match counter {
            Counter::Slot(_) => self.take(counter, now, cost),
            Counter::Debt { .. } => {
                let before = self.owed(counter, now);
                let after = before + i128::from(cost) * self.interval;
                let after = after.min(self.full_with_debt()).max(before);
                self.owe(counter, now, after);
            }
            _ => self.add(counter, now, fits),
        }
    }

    /// Corrects what a clock that stepped back or a larger quota left behind.
    pub fn clamp(&self, counter: &mut Counter, now: Nanos) {
        let stepped = self.kind.stepped(now);
        let (_, index) = self.kind.slice(now);
        let most = self.most_time;
        match counter {
            Counter::Debt { owed, at } => {
                if *owed - (stepped - *at) > most + self.tolerance {
                    (*owed, *at) = (most, stepped);
                }
            }
            Counter::Slot(next) => {
                if *next - now > most + self.tolerance {
                    *next = now + most;
                }
            }
            Counter::Counts(counts) => {
                // More than one ahead moves to now's, and those before it move along.
                let newest = counts.last_key_value().map_or(index, |(newest, _)| *newest);
                let back = if newest > index + 1 {
                    newest - index
                } else {
                    0
                };
                let moved = counts.iter();
                let moved = moved.map(|(i, count)| (i - back, (*count).min(self.most_units)));
                *counts = moved.collect();
            }
            Counter::Times(times) => {
                if times.last().is_some_and(|newest| *newest > now) {
                    times.retain(|time| *time > now - self.kind.period);
                    times.iter_mut().for_each(|time| *time = (*time).min(now));
                }
            }
        }
    }

    fn owed(&self, counter: &Counter, now: Nanos) -> Nanos {
        match counter {
            Counter::Debt { owed, at } => (owed - (self.kind.stepped(now) - at)).max(0),
            Counter::Slot(next) => (next - now).max(0),
            other => panic!("{other:?} owes no time"),
        }
    }

    /// The units that count against the limit of a window or log.
    fn used(&self, counter: &Counter, now: Nanos) -> i128 {
        match counter {
            Counter::Counts(counts) => {
                let (newest, passed) = self.kind.in_force(counts, now);
                if self.kind.kept() == 0 {
                    return counts.get(&newest).copied().unwrap_or(0);
                }
                let (length, _) = self.kind.slice(now);
                let oldest = newest - self.kind.slices;
                let whole: i128 = counts.range(oldest + 1..).map(|(_, count)| count).sum();
                let weighed = counts.get(&oldest).copied().unwrap_or(0) * (length - passed);
                whole + weighed.div_euclid(length)
            }
            Counter::Times(times) => {
                let gone = times.partition_point(|time| *time <= now - self.kind.period);
                i128::try_from(times.len() - gone).expect("few")
            }
            other => panic!("{other:?} counts nothing"),
        }
    }

    /// Whether `cost` is admitted: the definition's column "admit iff".
    pub fn admits(&self, counter: &Counter, now: Nanos, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        if self.floor > 0 {
            let (quota, mut after) = (self.without_floor(), counter.clone());
            quota.take(&mut after, now, cost);
            let remains = quota.available(&after, now) >= self.floor;
            return remains && quota.admits(counter, now, cost);
        }
        let cost = i128::from(cost);
        match counter {
            _ if self.varying.is_some() => self.balance(counter, now) + cost <= 0,
            Counter::Debt { .. } => self.owed(counter, now) + cost * self.interval <= self.full(),
            Counter::Slot(_) => {
                let wait = self.owed(counter, now) + (cost - 1) * self.interval;
                wait <= (self.capacity - 1) * self.interval
            }
            _ => self.used(counter, now) + cost <= self.capacity,
        }
    }

    /// How long an admitted cost waits in the queue.
    pub fn wait(&self, counter: &Counter, now: Nanos, cost: u64) -> Nanos {
        match counter {
            Counter::Slot(_) if cost > 0 => {
                self.owed(counter, now) + (i128::from(cost) - 1) * self.interval
            }
            _ => 0,
        }
    }

    /// The most that fits, soft share included.
    pub fn available(&self, counter: &Counter, now: Nanos) -> i128 {
        if self.floor > 0 {
            let all = self.without_floor().available(counter, now);
            return (all - self.floor).max(0);
        }
        match counter {
            Counter::Debt { .. } | Counter::Slot(_) => {
                let left = self.full() - self.owed(counter, now);
                left.max(0).div_euclid(self.interval)
            }
            _ if self.varying.is_some() => (-self.balance(counter, now)).max(0),
            _ => (self.capacity - self.used(counter, now)).max(0),
        }
    }

    /// Takes `cost`, down to exhaustion and no further. A counter that holds more, which a larger
    /// quota charged to it, stays as it is.
    pub fn take(&self, counter: &mut Counter, now: Nanos, cost: u64) {
        let fits = i128::from(cost).min(self.available(counter, now));
        match counter {
            Counter::Debt { .. } | Counter::Slot(_) => {
                let before = self.owed(counter, now);
                let after = before + i128::from(cost) * self.interval;
                let most = self.full() - self.floor * self.interval;
                self.owe(counter, now, after.min(most).max(before));
            }
            _ => self.add(counter, now, fits),
        }
    }

    /// Counts units in a window or log.
    fn add(&self, counter: &mut Counter, now: Nanos, units: i128) {
        match counter {
            Counter::Counts(counts) => {
                let (newest, _) = self.kind.in_force(counts, now);
                self.change_count(counts, now, newest, units);
            }
            Counter::Times(times) => {
                // Times that have left are forgotten, even if the clock steps back after this.
                times.retain(|time| *time > now - self.kind.period);
                times.extend((0..units).map(|_| now));
            }
            other => panic!("{other:?} counts nothing"),
        }
    }

    /// A debt that did not change is not kept: an idle key owes nothing at any time.
    fn owe(&self, counter: &mut Counter, now: Nanos, debt: Nanos) {
        if debt == self.owed(counter, now) {
            return;
        }
        *counter = match counter {
            Counter::Debt { .. } => Counter::Debt {
                owed: debt,
                at: self.kind.stepped(now),
            },
            _ => Counter::Slot(now + debt),
        };
    }

    fn change_count(&self, counts: &mut BTreeMap<i128, i128>, now: Nanos, index: i128, by: i128) {
        let (newest, _) = self.kind.in_force(counts, now);
        counts.entry(newest).or_insert(0);
        counts.retain(|index, _| *index >= newest - self.kind.kept());
        if let Some(count) = counts.get_mut(&index) {
            *count = (*count + by).max(0);
        }
        // Nothing counted is as good as new.
        if counts.values().all(|count| *count == 0) {
            counts.clear();
        }
    }

    /// Gives units back: of a charge, or of the newest one.
    pub fn refund(&self, counter: &mut Counter, now: Nanos, units: i128, charge: Option<Charge>) {
        match counter {
            Counter::Slot(next) if charge.is_some_and(|charge| charge.end != *next) => {}
            Counter::Debt { .. } | Counter::Slot(_) => {
                let back = match charge {
                    None => units * self.interval,
                    Some(charge) => self.not_faded(now, units, charge),
                };
                let owed = self.owed(counter, now);
                self.owe(counter, now, (owed - back).max(0));
            }
            Counter::Counts(counts) => {
                let index = match charge {
                    None => self.kind.in_force(counts, now).0,
                    Some(charge) => self.kind.slice(charge.at).1,
                };
                self.change_count(counts, now, index, -units);
            }
            Counter::Times(times) => {
                times.retain(|time| *time > now - self.kind.period);
                for _ in 0..units.min(times.len() as i128) {
                    let newest = times.last().copied();
                    let stamp = charge.map(|charge| charge.at).or(newest);
                    let Some(place) = times.iter().rposition(|time| Some(*time) == stamp) else {
                        return;
                    };
                    times.remove(place);
                }
            }
        }
    }

    /// r = min(cost · max(0, T − ⌈(now − charged_at) / burst⌉), max(0, end − now)), and nothing
    /// after a step back: the bucket may have been moved. Nothing either once T is another, or the
    /// bucket smaller than what it owed then.
    fn not_faded(&self, now: Nanos, units: i128, charge: Charge) -> Nanos {
        let (now, at) = (self.kind.stepped(now), self.kind.stepped(charge.at));
        let is_of_another =
            charge.interval != self.interval || charge.end - at > self.full_with_debt();
        if now < at || is_of_another {
            return 0;
        }
        let capacity = self.capacity.max(1);
        let faded = (now - at + capacity - 1).div_euclid(capacity);
        let back = units * (charge.interval - faded).max(0);
        back.min((charge.end - now).max(0))
    }

    /// The end of a bucket's debt; nothing for what owes no time.
    pub fn end(&self, counter: &Counter, now: Nanos) -> Nanos {
        match counter {
            Counter::Debt { .. } => self.kind.stepped(now) + self.owed(counter, now),
            Counter::Slot(_) => now + self.owed(counter, now),
            _ => 0,
        }
    }

    /// The first span of whole microseconds after which `passes` holds, if it ever does. What
    /// nobody adds to only gets better, so half of what is left can be ruled out at each look.
    fn first(&self, now: Nanos, passes: impl Fn(Nanos) -> bool) -> Option<Nanos> {
        if passes(now) {
            return Some(0);
        }
        let most = self.most_time.max(self.full()) + self.tolerance;
        let longest = 4 * (self.kind.period + most + self.kind.step);
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
    pub fn retry_after(&self, counter: &Counter, now: Nanos, cost: u64) -> Option<Nanos> {
        let admits = |at| self.admits(counter, at, cost);
        if self.varying.is_some() {
            return self.first_of_slices(now, admits);
        }
        self.first(now, admits)
    }

    /// The time until all of it is available.
    pub fn reset_after(&self, counter: &Counter, now: Nanos) -> Nanos {
        let is_fresh = |at| match counter {
            Counter::Debt { .. } | Counter::Slot(_) => self.owed(counter, at) == 0,
            Counter::Counts(counts) if self.varying.is_some() => self.counts_nothing(counts, at),
            _ => self.used(counter, at) == 0,
        };
        self.first(now, is_fresh)
            .expect("what was taken comes back")
    }

    /// The limit that responses report, also to a class that may use a part of it.
    pub fn limit(&self, counter: &Counter, now: Nanos) -> i128 {
        if self.varying.is_some() {
            return self.limit_in_force(counter, now);
        }
        self.capacity - self.extra
    }

    /// Whether more than the nominal limit is in use.
    pub fn is_excess(&self, counter: &Counter, now: Nanos) -> bool {
        if self.varying.is_some() {
            return self.extra > 0 && self.nominal_balance(counter, now) > 0;
        }
        self.available(counter, now) < self.extra
    }

    /// Units of the nominal limit that are left.
    pub fn remaining(&self, counter: &Counter, now: Nanos) -> i128 {
        if self.varying.is_some() {
            return (-self.nominal_balance(counter, now)).max(0);
        }
        (self.available(counter, now) - self.extra).max(0)
    }

    /// `t` of an admitted request: see the definition of the headers.
    pub fn effective_window(&self, counter: &Counter, now: Nanos) -> Nanos {
        let remaining = self.remaining(counter, now);
        match counter {
            Counter::Counts(counts) if self.kind.kept() == 0 => {
                let (newest, _) = self.kind.in_force(counts, now);
                self.kind.window_end(newest) - now
            }
            _ if remaining > 0 => remaining * self.interval,
            // No unit of a limit of 0 ever comes: the time of one, after the debt.
            Counter::Debt { .. } if self.capacity == 0 => {
                let due = self.owed(counter, now) + self.interval;
                let since = |at| self.kind.stepped(at) - self.kind.stepped(now);
                self.first(now, |at| since(at) >= due).expect("time passes")
            }
            Counter::Slot(_) if self.capacity == 0 => self.owed(counter, now) + self.interval,
            _ if self.capacity == 0 => self.interval,
            _ if self.varying.is_some() => self
                .first_of_slices(now, |at| self.remaining(counter, at) > 0)
                .expect("one unit comes back"),
            _ => self
                .first(now, |at| self.available(counter, at) > self.extra)
                .expect("one unit comes back"),
        }
    }
}
