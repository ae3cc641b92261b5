//! The usage of a quota: the level of a bucket, the count of a window, or reported numbers.

use std::time::Duration;

use super::{policy::Terms, rounding::Micros};
use crate::quota::Priority;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The units left of a quota, and the times at which more come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Usage {
    Level(Level),
    /// The bucket's part for requests of this class.
    Stepped(Stepped, Priority),
    Window(WindowUsage),
    /// With the limit in force, rounded up, of a quota whose limit varies; otherwise 0. It takes no room here, and a
    /// field of the status would cost every decision.
    Counted(Counted, u32),
}

/// A bucket that fills evenly. The numbers of a decision are computed from these three when they are
/// read, since divisions are slow and most numbers are never read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    /// Nanoseconds until the bucket is full.
    pub(crate) used: u64,
    /// Nanoseconds in which the nominal limit refills.
    pub(crate) refill: u64,
    /// Nanoseconds in which one unit refills.
    pub(crate) interval: u64,
}

/// A bucket that fills in steps. The rest of its level follows from its policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stepped {
    /// Nanoseconds from the last step until the bucket is full, before rounding up to a step.
    pub(crate) used: u64,
    /// Nanoseconds since the last step.
    pub(crate) passed: u64,
    /// Nanoseconds between two steps.
    pub(crate) step: u64,
}

/// A fixed window. Its other numbers follow from its policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowUsage {
    /// The units counted in the window; may exceed the limit.
    pub(crate) used: u64,
    /// Nanoseconds until the window ends.
    pub(crate) until_end: u64,
}

/// Numbers that an algorithm counted or a limiter reported; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(super) remaining: Option<Units>,
    pub(super) reset_after: Option<Micros>,
    pub(super) effective_window: Option<Micros>,
}

/// A number of units, stored plus one like [`Micros`], so that an `Option` takes no extra room.
pub(super) type Units = Micros;

impl Level {
    /// Whether more is used than the nominal limit.
    #[inline]
    pub(crate) const fn is_excess(self) -> bool {
        self.used > self.refill
    }

    #[inline]
    const fn remaining(self) -> u64 {
        self.refill.saturating_sub(self.used) / self.interval
    }

    /// Nanoseconds in which the remaining units refill, or the next unit if none remains.
    #[inline]
    const fn effective_window(self) -> u64 {
        match self.remaining() {
            0 => self.used + self.interval - self.refill,
            remaining => remaining * self.interval,
        }
    }

    const fn numbers(self) -> Counted {
        Counted::new(self.remaining(), self.used, self.effective_window())
    }
}

impl Stepped {
    pub(crate) fn level(self, terms: &Terms, class: Priority) -> Level {
        let window = terms.window_nanos();
        // The window of a limit of 0 is the interval of one unit.
        let interval = window / terms.limit.max(1);
        Level {
            used: self.used,
            refill: class.part_of(terms.limit) * interval,
            interval,
        }
    }

    /// Nanoseconds from now to the first refill step that is at least `wait` after the last step.
    pub(crate) const fn until_step(self, wait: u64) -> u64 {
        if wait == 0 {
            return 0;
        }
        let steps = wait.div_ceil(self.step);
        steps.saturating_mul(self.step) - self.passed
    }

    fn numbers(self, terms: &Terms, class: Priority) -> Counted {
        let level = self.level(terms, class);
        let window = match level.remaining() {
            0 => self.until_step(level.effective_window()),
            _ => level.effective_window(),
        };
        Counted::new(level.remaining(), self.until_step(self.used), window)
    }
}

impl WindowUsage {
    const fn remaining(self, terms: &Terms) -> u64 {
        terms.limit.saturating_sub(self.used)
    }

    // Not inlined: most quotas are levels.
    #[inline(never)]
    const fn numbers(self, terms: &Terms) -> Counted {
        let reset_after = if self.used == 0 { 0 } else { self.until_end };
        Counted::new(self.remaining(terms), reset_after, self.until_end)
    }
}

impl Counted {
    /// The remaining units, the microseconds until the quota is fresh, and the effective window in
    /// microseconds.
    #[cfg(feature = "shared")]
    pub(crate) fn reported(&self) -> [u64; 3] {
        let Self {
            remaining,
            reset_after,
            effective_window,
        } = self;
        [remaining, reset_after, effective_window].map(|number| number.map_or(0, Micros::get))
    }

    fn aged(self, micros: u64) -> Self {
        Self {
            reset_after: self.reset_after.map(|time| time.less(micros, 0)),
            effective_window: self.effective_window.map(|time| time.less(micros, 0)),
            ..self
        }
    }

    const fn new(remaining: u64, reset_after: u64, effective_window: u64) -> Self {
        Self {
            remaining: Some(Units::new(remaining)),
            reset_after: Some(Micros::from_nanos(reset_after)),
            effective_window: Some(Micros::from_nanos(effective_window)),
        }
    }
}

impl Usage {
    pub(super) const UNKNOWN: Self = Self::Counted(
        Counted {
            remaining: None,
            reset_after: None,
            effective_window: None,
        },
        0,
    );

    /// Numbers that an algorithm counted, with the limit in force if it varies: the remaining units, and the nanoseconds
    /// until the quota is fresh and of the effective window.
    pub(crate) fn counted(limit: Option<u64>, remaining: u64, [reset, window]: [u64; 2]) -> Self {
        let limit = limit.map_or(0, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
        Self::Counted(Counted::new(remaining, reset, window), limit)
    }

    #[inline]
    pub(super) const fn limit(&self, terms: &Terms) -> u64 {
        match self {
            Self::Counted(_, limit) if *limit > 0 => *limit as u64,
            _ => terms.limit,
        }
    }

    #[inline]
    pub(super) fn numbers(self, terms: &Terms) -> Counted {
        match self {
            Self::Counted(numbers, _) => numbers,
            Self::Level(level) => level.numbers(),
            Self::Stepped(stepped, class) => stepped.numbers(terms, class),
            Self::Window(window) => window.numbers(terms),
        }
    }

    /// The remaining units, `None` if unknown, without the divisions for the other numbers.
    #[inline]
    pub(super) fn remaining(&self, terms: &Terms) -> Option<u64> {
        match self {
            Self::Counted(numbers, _) => numbers.remaining.map(Units::get),
            Self::Level(level) => Some(level.remaining()),
            Self::Stepped(stepped, class) => Some(stepped.level(terms, *class).remaining()),
            Self::Window(window) => Some(window.remaining(terms)),
        }
    }

    /// The units in use, `None` if unknown. `most` is the most units that the request's class may use.
    pub(super) fn used(&self, terms: &Terms, most: u64) -> Option<u64> {
        if let Self::Window(window) = self {
            return Some(window.used);
        }
        let remaining = self.remaining(terms)?;
        Some(most.saturating_sub(remaining))
    }

    /// The remaining units, and the effective window in whole seconds, rounded up.
    #[inline]
    pub(super) fn remaining_and_seconds(&self, terms: &Terms) -> (Option<u64>, Option<u64>) {
        if let Self::Level(level) = self {
            let seconds = level.effective_window().div_ceil(NANOS_PER_SECOND);
            return (Some(level.remaining()), Some(seconds));
        }
        self.rest_and_seconds(terms)
    }

    /// [`remaining_and_seconds`](Self::remaining_and_seconds) for everything except levels, not
    /// inlined because it is rare.
    #[inline(never)]
    fn rest_and_seconds(&self, terms: &Terms) -> (Option<u64>, Option<u64>) {
        if let Self::Window(window) = self {
            let seconds = window.until_end.div_ceil(NANOS_PER_SECOND);
            return (Some(window.remaining(terms)), Some(seconds));
        }
        let numbers = self.numbers(terms);
        let seconds = numbers.effective_window.map(Micros::whole_seconds);
        (numbers.remaining.map(Units::get), seconds)
    }

    /// The usage after `micros` microseconds without another request.
    pub(super) fn aged(self, micros: u64) -> Self {
        let nanos = micros.saturating_mul(1_000);
        match self {
            Self::Level(level) => Self::Level(Level {
                used: level.used.saturating_sub(nanos),
                ..level
            }),
            Self::Stepped(stepped, class) => {
                let passed = stepped.passed.saturating_add(nanos);
                let step = stepped.step.max(1);
                let stepped = Stepped {
                    used: stepped.used.saturating_sub(passed - passed % step),
                    passed: passed % step,
                    ..stepped
                };
                Self::Stepped(stepped, class)
            }
            Self::Window(window) => Self::Window(WindowUsage {
                until_end: window.until_end.saturating_sub(nanos),
                ..window
            }),
            Self::Counted(numbers, limit) => Self::Counted(numbers.aged(micros), limit),
        }
    }

    /// The least time in which `units` pass after `head` others that just fit. A bucket needs the
    /// refill time of `units`; a window or log needs whole periods.
    pub(super) fn time_of(self, terms: &Terms, most: u64, (head, units): (u64, u64)) -> Duration {
        match self {
            Self::Level(level) => Duration::from_nanos(level.interval.saturating_mul(units)),
            Self::Stepped(stepped, class) => {
                let whole = stepped.level(terms, class).interval.saturating_mul(units);
                let steps = whole / stepped.step.max(1);
                Duration::from_nanos(steps.saturating_mul(stepped.step))
            }
            // How much fits in the next period depends on the hour.
            _ if terms.has_varying_limit() => Duration::ZERO,
            Self::Window(_) | Self::Counted(..) => {
                let last = head.saturating_add(units).saturating_sub(1);
                let periods = last / most.max(1);
                let periods = u32::try_from(periods).unwrap_or(u32::MAX);
                terms.window().unwrap_or_default().saturating_mul(periods)
            }
        }
    }

    /// The time until `units` fit into an evenly filling bucket; zero for all other usages.
    pub(super) const fn time_until(self, units: u64) -> Duration {
        let Self::Level(level) = self else {
            return Duration::ZERO;
        };
        let needed = level.interval.saturating_mul(units);
        let taken = level.used.saturating_add(needed);
        Duration::from_nanos(taken.saturating_sub(level.refill))
    }

    /// The instant at which a bucket with this usage at `now` is full again, and the nanoseconds of one
    /// unit. `None` for windows and logs.
    pub(super) fn end(self, terms: &Terms, now: u64) -> Option<(u64, u64)> {
        match self {
            Self::Level(level) => Some((now.saturating_add(level.used), level.interval)),
            Self::Stepped(stepped, class) => {
                let last_step = now.saturating_sub(stepped.passed);
                let interval = stepped.level(terms, class).interval;
                Some((last_step.saturating_add(stepped.used), interval))
            }
            Self::Window(_) | Self::Counted(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Key, LocalLimiter, ManualClock, Quota};

    #[test]
    fn aged_denial_equals_a_later_one() {
        for quota in [
            Quota::per_minute(6).burst(10),
            Quota::per_minute(6).refill_every(Duration::from_secs(20)),
            Quota::per_minute(6).fixed_window(),
        ] {
            let clock = ManualClock::new();
            let builder = LocalLimiter::builder(quota).clock(clock.clone());
            let limiter = builder.build().expect("a good quota");
            let key = Key::global();
            assert!(limiter.acquire_up_to(&key, 20).charged() > 0);
            let early = limiter.peek(&key, 4);
            let passed = Duration::from_millis(7_250);
            clock.advance(passed);
            let aged = early.aged(passed);
            let late = limiter.peek(&key, 4);
            assert!(aged.quotas().eq(late.quotas()), "{quota:?}");
            let behind = |of: &crate::Decision| of.binding_status().wait_behind(4, 5);
            assert_eq!(behind(&aged), behind(&late), "{quota:?}");
        }
    }
}
