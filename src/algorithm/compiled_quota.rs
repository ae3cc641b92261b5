//! `CompiledQuota`: a quota compiled to numbers ready to count, and the state of a key.

mod bytes;
mod debt;
mod key_state;
#[cfg(feature = "shared")]
pub(super) mod reserved_units;
#[cfg(feature = "shared")]
pub(super) mod stored_state_format;

pub(crate) use self::key_state::State;
use super::{
    Bucket, ClockSkew, Counts, Divisible, Most, Refund, Verdict,
    calendar_windows::CalendarWindows,
    eviction_weight::{EvictionWeight, Fading, Weight},
    fixed_window::{FixedWindow, Periods},
    sliding_log::SlidingLog,
    sliding_window::SlidingWindow,
    token_bucket::TokenBucket,
    varying_window::VaryingWindow,
};
use crate::{
    clock::ClockReading,
    decision::{Charge, Usage},
    quota::{Algorithm, Kind, Priority, Quota},
};

/// A valid quota with all numbers that its algorithm needs. Compiled once for each quota, not for each
/// decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompiledQuota {
    rate: Rate,
    kind: Kind,
    /// T: nanoseconds for one unit.
    interval: u64,
    /// The soft share in units.
    extra: u64,
    /// The units beyond the limit that a key may owe.
    debt: u64,
    /// Whether it is the part of a quota that a class of requests may use.
    is_part: bool,
}

#[derive(Debug, Clone, Copy)]
enum Rate {
    Bucket(Bucket),
    FixedWindow(FixedWindow<Periods>),
    CalendarWindow(FixedWindow<&'static CalendarWindows>),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    Varying(VaryingWindow),
}

impl Rate {
    fn new(quota: &Quota, most: Most) -> Self {
        let skew = ClockSkew::None;
        if let Some(window) = VaryingWindow::of(quota, most) {
            return Self::Varying(window);
        }
        match quota.algorithm() {
            Algorithm::TokenBucket => Self::Bucket(Bucket::token(quota, most, skew)),
            Algorithm::LeakyBucket { .. } => Self::Bucket(Bucket::leaky(quota, most, skew)),
            Algorithm::FixedWindow => match quota.calendar() {
                None => {
                    let periods = Periods(quota.period_nanos());
                    Self::FixedWindow(FixedWindow::new(quota, most, periods))
                }
                Some(calendar) => {
                    let windows = CalendarWindows::of(calendar);
                    Self::CalendarWindow(FixedWindow::new(quota, most, windows))
                }
            },
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota, most)),
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::new(quota)),
        }
    }
}

impl CompiledQuota {
    /// The meter of a valid quota, for a key that is locked. `most` is the largest value of the
    /// counter, which other quotas may share.
    pub(crate) fn new(quota: &Quota, most: Most) -> Self {
        let rate = Rate::new(quota, most);
        Self {
            debt: rate.debt(quota, most),
            rate,
            kind: quota.kind(),
            // An uncapped window may have a limit with an interval of 0.
            interval: quota.interval_nanos().max(1),
            extra: quota.extra(),
            is_part: false,
        }
    }

    /// Nanoseconds until the state is fresh.
    pub(crate) fn reset_after(&self, state: &State, now: u64) -> u64 {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.reset_after(*state.instant(), now),
            Rate::FixedWindow(window) => window.reset_after(state.window(), now),
            Rate::CalendarWindow(window) => window.reset_after(state.window(), now),
            Rate::SlidingWindow(window) => window.reset_after(state.slices(), now),
            Rate::SlidingLog(log) => log.reset_after(state.log(), now),
            Rate::Varying(window) => window.reset_after(state, now),
        }
    }

    /// Nanoseconds within which a client gets at most `remaining` units.
    fn effective_window(&self, state: &State, now: u64, remaining: u64) -> u64 {
        match &self.rate {
            Rate::FixedWindow(window) => return window.until_end(state.window(), now),
            Rate::CalendarWindow(window) => return window.until_end(state.window(), now),
            _ => {}
        }
        if remaining > 0 {
            return remaining.saturating_mul(self.interval);
        }
        match self.verdict(state, now, self.extra + 1) {
            Verdict::After(wait) => wait,
            Verdict::Fits { .. } => 0,
            // The limit is 0.
            Verdict::Never => self.interval,
        }
    }

    /// The index of the window of the calendar at an instant; `None` if the quota follows none.
    #[cfg(feature = "shared")]
    pub(crate) fn window_index(&self, at: u64) -> Option<u64> {
        match &self.rate {
            Rate::CalendarWindow(window) => Some(window.index(at)),
            _ => None,
        }
    }

    /// The usage that is lost with the state; zero exactly if the state is fresh.
    pub(crate) fn weight(&self, state: &State, time: ClockReading) -> Weight {
        let now = self.instant(time);
        let reset_after = self.reset_after(state, now);
        if reset_after == 0 {
            return Weight::default();
        }
        let used = self.used_nanos(state, now);
        let is_exhausted = self.available(state, now) == 0;
        Weight {
            blocked: 0,
            time: if is_exhausted {
                used
            } else {
                used.min(reset_after)
            },
            used,
        }
    }

    /// The weight of the state, for an eviction without this quota: by the clock that does not step.
    #[inline]
    pub(crate) fn eviction_weight(&self, state: &State, time: ClockReading) -> EvictionWeight {
        let now = time.as_nanos();
        if self.token().is_some() {
            let used = state.instant().saturating_sub(now);
            return EvictionWeight::new(now.saturating_add(used), used, Fading::Flows);
        }
        self.eviction_weight_of_any(state, time)
    }

    #[inline(never)]
    fn eviction_weight_of_any(&self, state: &State, time: ClockReading) -> EvictionWeight {
        let now = self.instant(time);
        let fresh_at = (time.as_nanos()).saturating_add(self.reset_after(state, now));
        let hold = match &self.rate {
            Rate::Bucket(_) => Fading::Flows,
            _ if self.available(state, now) == 0 => Fading::Exhausted,
            _ => Fading::Counts,
        };
        EvictionWeight::new(fresh_at, self.used_nanos(state, now), hold)
    }

    /// Nanoseconds in which the used units return at the quota's mean rate.
    fn used_nanos(&self, state: &State, now: u64) -> u64 {
        let units = match &self.rate {
            Rate::Bucket(bucket) => return bucket.used(*state.instant(), now),
            Rate::FixedWindow(window) => window.used(state.window(), now),
            Rate::CalendarWindow(window) => window.used(state.window(), now),
            Rate::SlidingWindow(window) => window.used(state.slices(), now),
            Rate::SlidingLog(log) => log.used(state.log(), now),
            Rate::Varying(window) => window.used(state, now),
        };
        units.saturating_mul(self.interval)
    }
}

/// The hot functions for quotas of any kind. Those of the usual token bucket are inlined.
impl CompiledQuota {
    #[inline]
    const fn token(&self) -> Option<&TokenBucket> {
        match &self.rate {
            Rate::Bucket(Bucket::Token(bucket)) => Some(bucket),
            _ => None,
        }
    }

    #[inline(never)]
    fn verdict_of_any(&self, state: &State, now: u64, cost: u64) -> Verdict {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().verdict(state.instant(), now, cost),
            Rate::FixedWindow(window) => window.verdict(state.window(), now, cost),
            Rate::CalendarWindow(window) => window.verdict(state.window(), now, cost),
            Rate::SlidingWindow(window) => window.verdict(state.slices(), now, cost),
            Rate::SlidingLog(log) => log.verdict(state.log(), now, cost),
            Rate::Varying(window) => window.verdict(state, now, cost),
        }
    }

    #[inline(never)]
    fn charge_of_any(&self, state: &mut State, now: u64, cost: u64) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().charge(state.instant_mut(), now, cost),
            Rate::FixedWindow(window) => {
                *state = State::Window(window.charge(state.window(), now, cost));
            }
            Rate::CalendarWindow(window) => {
                *state = State::Window(window.charge(state.window(), now, cost));
            }
            Rate::SlidingWindow(window) => window.charge(state.slices_mut(), now, cost),
            Rate::SlidingLog(log) => log.charge(state.log_mut(), now, cost),
            Rate::Varying(window) => window.charge(state, now, (cost, 0)),
        }
    }

    #[inline(never)]
    fn clamp_of_any(&self, state: &mut State, now: u64) {
        match (&self.rate, state) {
            (Rate::Bucket(bucket), State::Instant(instant)) => {
                bucket.as_counts().clamp(instant, now);
            }
            (Rate::FixedWindow(fixed), State::Window(window)) => {
                *window = fixed.clamped(*window, now);
            }
            (Rate::CalendarWindow(fixed), State::Window(window)) => {
                *window = fixed.clamped(*window, now);
            }
            (Rate::SlidingWindow(window), State::Slices(slices)) => window.clamp(slices, now),
            (Rate::SlidingLog(sliding), State::Log(log)) => sliding.clamp(log, now),
            (Rate::Varying(window), state) => window.clamp(state, now),
            // A state of another algorithm or a fresh one needs no clamp.
            _ => {}
        }
    }

    #[inline(never)]
    fn standing_of_any(&self, state: &State, now: u64) -> (Usage, bool) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().standing(state.instant(), now),
            Rate::FixedWindow(window) if !self.is_part => {
                window.standing(state.window(), now, self.extra)
            }
            Rate::CalendarWindow(window) if !self.is_part => {
                window.standing(state.window(), now, self.extra)
            }
            Rate::Varying(window) => window.standing(state, now, (self.interval, self.extra > 0)),
            _ => {
                let available = self.available(state, now);
                let remaining = available.saturating_sub(self.extra);
                let reset_after = self.reset_after(state, now);
                let window = self.effective_window(state, now, remaining);
                let standing = Usage::counted(remaining, reset_after, window);
                (standing, available < self.extra)
            }
        }
    }
}

impl Divisible for CompiledQuota {
    fn part(&self, class: Priority) -> Self {
        let part = |limit: u64| class.part_of(limit - self.extra);
        let rate = match self.rate {
            Rate::Bucket(bucket) => Rate::Bucket(bucket.part(class)),
            Rate::FixedWindow(window) => Rate::FixedWindow(window.with_limit(part(window.limit))),
            Rate::CalendarWindow(window) => {
                Rate::CalendarWindow(window.with_limit(part(window.limit)))
            }
            Rate::SlidingWindow(window) => {
                Rate::SlidingWindow(window.with_limit(part(window.limit)))
            }
            Rate::SlidingLog(log) => Rate::SlidingLog(log.with_limit(part(log.limit))),
            Rate::Varying(window) => Rate::Varying(window.part(class)),
        };
        Self {
            rate,
            // A soft share is for critical requests.
            extra: 0,
            is_part: true,
            ..*self
        }
    }
}

impl Counts for CompiledQuota {
    type State = State;

    #[inline]
    fn instant(&self, time: ClockReading) -> u64 {
        match &self.rate {
            Rate::Bucket(_) | Rate::SlidingLog(_) => time.now.as_nanos(),
            _ => time.wall.as_nanos(),
        }
    }

    #[inline]
    fn verdict(&self, state: &State, now: u64, cost: u64) -> Verdict {
        match self.token() {
            Some(bucket) => bucket.verdict(state.instant(), now, cost),
            None => self.verdict_of_any(state, now, cost),
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        match (self.token(), state) {
            (Some(bucket), State::Instant(tat)) => bucket.charge(tat, now, cost),
            (_, state) => self.charge_of_any(state, now, cost),
        }
    }

    #[inline]
    fn charge_late(&self, state: &mut State, now: u64, late: u64, cost: u64) {
        match (self.token(), state) {
            (Some(bucket), State::Instant(tat)) => bucket.charge_late(tat, now, late, cost),
            (_, state) => self.charge_of_any(state, now, cost),
        }
    }

    #[inline]
    fn clamp(&self, state: &mut State, now: u64) {
        match (self.token(), state) {
            (Some(bucket), State::Instant(tat)) => bucket.clamp(tat, now),
            (_, state) => self.clamp_of_any(state, now),
        }
    }

    #[inline]
    fn standing(&self, state: &State, now: u64) -> (Usage, bool) {
        match self.token() {
            Some(bucket) => bucket.standing(state.instant(), now),
            None => self.standing_of_any(state, now),
        }
    }

    fn available(&self, state: &State, now: u64) -> u64 {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().available(state.instant(), now),
            Rate::FixedWindow(window) => window.available(state.window(), now),
            Rate::CalendarWindow(window) => window.available(state.window(), now),
            Rate::SlidingWindow(window) => window.available(state.slices(), now),
            Rate::SlidingLog(log) => log.available(state.log(), now),
            Rate::Varying(window) => window.available(state, now),
        }
    }

    fn spendable(&self, state: &State, now: u64) -> u64 {
        self.spendable_of_any(state, now)
    }

    fn spend(&self, state: &mut State, now: u64, cost: u64) {
        self.spend_of_any(state, now, cost);
    }

    fn count(&self, state: &mut State, now: u64, cost: u64) {
        *state = State::Window(match &self.rate {
            Rate::FixedWindow(window) => window.count(state.window(), now, cost),
            Rate::CalendarWindow(window) => window.count(state.window(), now, cost),
            _ => return,
        });
    }

    fn over(&self, state: &State, now: u64, cost: u64) -> Verdict {
        match &self.rate {
            Rate::FixedWindow(window) => window.over(state.window(), now, cost),
            Rate::CalendarWindow(window) => window.over(state.window(), now, cost),
            _ => Verdict::Never,
        }
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().made(charged_at, charge),
            _ => charge.kind == self.kind,
        }
    }

    fn refund(&self, state: &mut State, now: u64, refund: Refund) {
        match &self.rate {
            Rate::Bucket(bucket) => {
                bucket.as_counts().refund(state.instant_mut(), now, refund);
            }
            Rate::FixedWindow(window) => {
                *state = State::Window(window.refund(state.window(), now, refund));
            }
            Rate::CalendarWindow(window) => {
                *state = State::Window(window.refund(state.window(), now, refund));
            }
            Rate::SlidingWindow(window) => window.refund(state.slices_mut(), now, refund),
            Rate::SlidingLog(log) => log.refund(state.log_mut(), now, refund),
            Rate::Varying(window) => window.refund(state, now, refund),
        }
    }

    fn kind(&self) -> Kind {
        self.kind
    }
}
