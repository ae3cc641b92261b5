use super::{
    Bucket, ClockSkew, Counts, Verdict,
    fixed_window::{FixedWindow, Window},
    sliding_log::{Log, SlidingLog},
    sliding_window::{Slices, SlidingWindow},
};
use crate::{
    decision::Standing,
    quota::{Algorithm, Quota},
};

/// A quota as its algorithm counts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    rate: Rate,
    /// T: the time for one unit.
    interval: u64,
    /// The most that can be available, soft share included.
    capacity: u64,
    /// The soft share.
    extra: u64,
}

#[derive(Debug, Clone, Copy)]
enum Rate {
    Bucket(Bucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
}

/// What is remembered of a key for one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Of a token bucket or a leaky bucket.
    Instant(u64),
    Window(Window),
    Slices(Box<Slices>),
    Log(Box<Log>),
}

/// A state of another algorithm, left by a change of quota, reads as that of a key that was never
/// seen.
impl State {
    /// The state of a key that was never seen.
    pub(crate) const FRESH: Self = Self::Instant(0);

    fn instant(&self) -> &u64 {
        match self {
            Self::Instant(instant) => instant,
            _ => &0,
        }
    }

    fn instant_mut(&mut self) -> &mut u64 {
        if !matches!(self, Self::Instant(_)) {
            *self = Self::FRESH;
        }
        match self {
            Self::Instant(instant) => instant,
            _ => unreachable!("it was just made one"),
        }
    }

    fn window(&self) -> Window {
        match self {
            Self::Window(window) => *window,
            _ => Window::default(),
        }
    }

    fn slices(&self) -> &Slices {
        static FRESH: Slices = Slices::FRESH;
        match self {
            Self::Slices(slices) => slices,
            _ => &FRESH,
        }
    }

    fn slices_mut(&mut self) -> &mut Slices {
        if !matches!(self, Self::Slices(_)) {
            *self = Self::Slices(Box::new(Slices::FRESH));
        }
        match self {
            Self::Slices(slices) => slices,
            _ => unreachable!("it was just made one"),
        }
    }

    /// How many times a log keeps; 0 for all other states, whose size is fixed.
    pub(crate) fn times_kept(&self) -> usize {
        self.log().len()
    }

    fn log(&self) -> &Log {
        static FRESH: Log = Log::FRESH;
        match self {
            Self::Log(log) => log,
            _ => &FRESH,
        }
    }

    fn log_mut(&mut self) -> &mut Log {
        if !matches!(self, Self::Log(_)) {
            *self = Self::Log(Box::new(Log::FRESH));
        }
        match self {
            Self::Log(log) => log,
            _ => unreachable!("it was just made one"),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::FRESH
    }
}

impl Rate {
    fn new(quota: &Quota, skew: ClockSkew) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket => Self::Bucket(Bucket::token(quota, skew)),
            Algorithm::LeakyBucket { .. } => Self::Bucket(Bucket::leaky(quota, skew)),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota)),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota)),
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::new(quota)),
        }
    }
}

impl Meter {
    /// What there is [`loss_of`](Self::loss_of) of a key that is exhausted.
    pub(crate) const EXHAUSTED: u64 = 1 + u32::MAX as u64;

    /// The meter of a quota that was checked.
    pub(crate) fn new(quota: &Quota, skew: ClockSkew) -> Self {
        Self {
            rate: Rate::new(quota, skew),
            interval: quota.interval_nanos(),
            capacity: quota.capacity() + quota.extra(),
            extra: quota.extra(),
        }
    }

    /// The time until the state is as good as that of a key that was never seen.
    fn reset_after(&self, state: &State, now: u64) -> u64 {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.reset_after(*state.instant(), now),
            Rate::FixedWindow(window) => window.reset_after(state.window(), now),
            Rate::SlidingWindow(window) => window.reset_after(state.slices(), now),
            Rate::SlidingLog(log) => log.reset_after(state.log(), now),
        }
    }

    /// The time within which a client gets no more than `remaining`.
    fn effective_window(&self, state: &State, now: u64, remaining: u64) -> u64 {
        if let Rate::FixedWindow(window) = &self.rate {
            return window.end(state.window(), now);
        }
        if remaining > 0 {
            return remaining.saturating_mul(self.interval);
        }
        match self.verdict(state, now, self.extra + 1) {
            Verdict::After(wait) => wait,
            Verdict::Fits { .. } | Verdict::Never => 0,
        }
    }

    /// How much would be lost if the state were forgotten: 0 for nothing, the most for a key that
    /// is exhausted.
    pub(crate) fn loss_of(&self, state: &State, now: u64) -> u64 {
        if self.reset_after(state, now) == 0 {
            return 0;
        }
        let used = u128::from(self.capacity - self.available(state, now));
        1 + (used * u128::from(u32::MAX) / u128::from(self.capacity)) as u64
    }
}

impl Counts for Meter {
    type State = State;

    fn verdict(&self, state: &State, now: u64, cost: u64) -> Verdict {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().verdict(state.instant(), now, cost),
            Rate::FixedWindow(window) => window.verdict(state.window(), now, cost),
            Rate::SlidingWindow(window) => window.verdict(state.slices(), now, cost),
            Rate::SlidingLog(log) => log.verdict(state.log(), now, cost),
        }
    }

    fn available(&self, state: &State, now: u64) -> u64 {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().available(state.instant(), now),
            Rate::FixedWindow(window) => window.available(state.window(), now),
            Rate::SlidingWindow(window) => window.available(state.slices(), now),
            Rate::SlidingLog(log) => log.available(state.log(), now),
        }
    }

    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().charge(state.instant_mut(), now, cost),
            Rate::FixedWindow(window) => {
                *state = State::Window(window.charge(state.window(), now, cost));
            }
            Rate::SlidingWindow(window) => window.charge(state.slices_mut(), now, cost),
            Rate::SlidingLog(log) => log.charge(state.log_mut(), now, cost),
        }
    }

    fn refund(&self, state: &mut State, now: u64, cost: u64, charged_at: u64) {
        match &self.rate {
            Rate::Bucket(bucket) => {
                bucket
                    .as_counts()
                    .refund(state.instant_mut(), now, cost, charged_at)
            }
            Rate::FixedWindow(window) => {
                *state = State::Window(window.refund(state.window(), now, cost, charged_at));
            }
            Rate::SlidingWindow(window) => {
                window.refund(state.slices_mut(), now, cost, charged_at);
            }
            Rate::SlidingLog(log) => log.refund(state.log_mut(), now, cost, charged_at),
        }
    }

    fn heal(&self, state: &mut State, now: u64) {
        match (&self.rate, state) {
            (Rate::Bucket(bucket), State::Instant(instant)) => {
                bucket.as_counts().heal(instant, now);
            }
            (Rate::FixedWindow(fixed), State::Window(window)) => {
                *window = fixed.healed(*window, now);
            }
            (Rate::SlidingWindow(window), State::Slices(slices)) => window.heal(slices, now),
            (Rate::SlidingLog(sliding), State::Log(log)) => sliding.heal(log, now),
            // Of another algorithm, or never used: there is nothing to bring back.
            _ => {}
        }
    }

    fn standing(&self, state: &State, now: u64) -> (Standing, bool) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.as_counts().standing(state.instant(), now),
            _ => {
                let available = self.available(state, now);
                let remaining = available.saturating_sub(self.extra);
                let reset_after = self.reset_after(state, now);
                let window = self.effective_window(state, now, remaining);
                let standing = Standing::counted(remaining, reset_after, window);
                (standing, available < self.extra)
            }
        }
    }
}
