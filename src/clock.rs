//! Clocks: sources of time.
//!
//! Every decision is a function of the state, the operation and a [`Timestamp`] from a [`Clock`].
//! [`OsClock`] is the default; [`ManualClock`] stands still until a test moves it, so that no test has
//! to wait; `QuantaClock` (feature `quanta`) reads the CPU's time stamp counter.

mod anchor;
mod reading;
mod timestamp;

use std::{
    fmt,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub(crate) use self::reading::ClockReading;
pub use self::timestamp::Timestamp;
use self::{anchor::Anchor, timestamp::whole_micros};

/// A source of time.
///
/// A limiter reads it once per decision, from any thread. If the clock steps back, a key waits at most
/// a full quota longer than without the step, or a second if that is more. A fixed or sliding window
/// that lies one period ahead stays in force, so it can lock a key out for up to two periods in all. A
/// clock that steps back and forth again can give a key its quota anew.
pub trait Clock: Send + Sync + 'static {
    /// The current time, for whatever lasts: buckets, logs, queues, blocks and waits. It should not step.
    fn now(&self) -> Timestamp;

    /// The wall clock's time at `now`, a time of this clock: for windows, calendars, times of day, and what
    /// others read. The same by default.
    ///
    /// It may step. After a step back a window stays in force as after a step of the clock; after one
    /// ahead the next window begins.
    fn wall(&self, now: Timestamp) -> Timestamp {
        now
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        C::now(self)
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        C::wall(self, now)
    }
}

/// The operating system's clock: the wall clock's time at the first read in the process, plus the
/// monotonic time since then. It never steps back, and neither NTP nor an operator moves it.
///
/// [`wall`](Clock::wall) follows them: at most once a second it reads the wall clock, and by a difference
/// of more than two seconds it is ahead or behind from then on. So a clock that is set after the
/// process began is right a second later. Where the monotonic clock stands still while the machine sleeps,
/// as in Linux, buckets do not refill meanwhile, and windows end.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct OsClock;

impl OsClock {
    /// The clock. All clocks of this type in one process agree.
    pub const fn new() -> Self {
        Self
    }
}

/// How much the wall clock is ahead of [`OsClock`].
static OS_ANCHOR: Anchor = Anchor::new();

impl Clock for OsClock {
    fn now(&self) -> Timestamp {
        static START: LazyLock<(Timestamp, Instant)> =
            LazyLock::new(|| (wall_clock(), Instant::now()));
        let (wall, monotonic) = *START;
        wall.saturating_add(monotonic.elapsed())
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        OS_ANCHOR.wall(now, || read_with(self))
    }
}

impl OsClock {
    /// The wall clock's time.
    pub(crate) fn wall_now() -> Timestamp {
        Self.wall(Self.now())
    }

    /// How many microseconds the wall clock is ahead now.
    #[cfg(feature = "tokio")]
    pub(crate) fn ahead() -> i64 {
        let _ = Self::wall_now();
        OS_ANCHOR.ahead()
    }

    /// The wall clock's time of a time of this clock, as both are apart now.
    pub(crate) fn wall_of(time: Timestamp) -> Timestamp {
        let now = Self.now();
        let wall = Self.wall(now);
        ClockReading::new(now, wall).at(time).wall
    }
}

/// A reading of a clock and of the operating system's wall clock.
fn read_with(clock: &impl Clock) -> ClockReading {
    ClockReading::new(clock.now(), wall_clock())
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(whole_micros(since_epoch))
}

/// A clock that stands still until it is moved. Clones share the time.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::{Key, LocalLimiter, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// let limiter = LocalLimiter::builder(Quota::per_minute(1))
///     .clock(clock.clone())
///     .build()?;
/// let key = Key::from("alice");
/// assert!(limiter.acquire(&key, 1).is_allowed());
/// assert!(limiter.acquire(&key, 1).is_denied());
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.acquire(&key, 1).is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock at 2026-01-01T00:00Z, a Thursday: the start of a fixed window of a minute, an hour, a day or a
    /// week.
    pub fn new() -> Self {
        Self::at(Timestamp::from_secs(1_767_225_600))
    }

    /// A clock at `now`, for tests that depend on the date, such as the edge of a fixed window.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves the clock forward, in whole microseconds, for all clones at once. It ends no wait: timers are
    /// tokio's, see `TokioClock`.
    pub fn advance(&self, duration: Duration) {
        self.move_by(|now| now.saturating_add(duration));
    }

    /// Moves the clock back, like a correction of a wall clock.
    pub fn step_back(&self, duration: Duration) {
        self.move_by(|now| now.saturating_sub(duration));
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    fn move_by(&self, step: impl Fn(Timestamp) -> Timestamp) {
        let mut now = self.0.load(Ordering::SeqCst);
        while let Err(moved) = self.0.compare_exchange(
            now,
            step(Timestamp(now)).0,
            Ordering::SeqCst,
            Ordering::SeqCst,
        ) {
            now = moved;
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Tokio's clock: [`OsClock`]'s time when this clock was made, plus tokio's time since then.
/// [`wall`](Clock::wall) follows the steps of the wall clock, as [`OsClock`]'s does, also while tokio's time is
/// paused.
///
/// In a test with [paused](https://docs.rs/tokio/latest/tokio/time/fn.pause.html) time, one
/// `tokio::time::advance` moves limiter and timers together. Without paused time, [`OsClock`] is
/// equivalent and cheaper to read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tower_ratelimit::ConfigError> {
/// use std::time::Duration;
/// use tower_ratelimit::{Key, LocalLimiter, Quota, TokioClock};
///
/// let limiter = LocalLimiter::builder(Quota::per_minute(1)).clock(TokioClock::new()).build()?;
/// let key = Key::from("alice");
/// assert!(limiter.acquire(&key, 1).is_allowed());
/// assert!(limiter.acquire(&key, 1).is_denied());
/// tokio::time::advance(Duration::from_secs(60)).await;
/// assert!(limiter.acquire(&key, 1).is_allowed());
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "tokio")]
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: (Timestamp, tokio::time::Instant),
}

#[cfg(feature = "tokio")]
impl TokioClock {
    /// A clock that starts at [`OsClock`]'s time. If time is paused, make it in the runtime that
    /// paused it.
    pub fn new() -> Self {
        Self {
            start: (OsClock.now(), tokio::time::Instant::now()),
        }
    }
}

#[cfg(feature = "tokio")]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "tokio")]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let (wall, start) = self.start;
        wall.saturating_add(start.elapsed())
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.saturating_add_signed(OsClock::ahead()))
    }
}

/// The CPU's time stamp counter, read by [quanta](https://docs.rs/quanta).
///
/// A read costs less than one of the operating system's clock. It is not the default because on some
/// machines the counters of different cores disagree, so that time steps back
/// ([governor issue 299](https://github.com/boinkor-net/governor/issues/299)).
#[cfg(feature = "quanta")]
#[derive(Clone)]
pub struct QuantaClock {
    clock: quanta::Clock,
    start: (Timestamp, quanta::Instant),
    anchor: Arc<Anchor>,
}

#[cfg(feature = "quanta")]
impl QuantaClock {
    /// A clock that starts at [`OsClock`]'s time. The first one in a process calibrates the counter,
    /// in up to 200 ms.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let start = (OsClock.now(), clock.now());
        let anchor = Arc::default();
        Self {
            clock,
            start,
            anchor,
        }
    }
}

#[cfg(feature = "quanta")]
impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "quanta")]
impl fmt::Debug for QuantaClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuantaClock").finish_non_exhaustive()
    }
}

#[cfg(feature = "quanta")]
impl Clock for QuantaClock {
    fn now(&self) -> Timestamp {
        let (wall, start) = self.start;
        wall.saturating_add(self.clock.now().duration_since(start))
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        self.anchor.wall(now, || read_with(self))
    }
}

/// A limiter's clock. An indirect call for each read keeps the clock out of the limiter's type.
#[derive(Clone)]
pub(crate) struct SharedClock(Arc<dyn Clock>);

impl SharedClock {
    pub(crate) fn new(clock: impl Clock) -> Self {
        Self(Arc::new(clock))
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.0.now()
    }

    #[inline]
    pub(crate) fn read(&self) -> ClockReading {
        let now = self.0.now();
        let wall = self.0.wall(now);
        ClockReading::new(now, wall)
    }
}

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
