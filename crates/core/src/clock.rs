//! Clocks: sources of time.
//!
//! Every decision is a function of the state, the operation and a [`Timestamp`] from a [`Clock`].
//! [`OsClock`] is the default; [`ManualClock`] stands still until a test moves it, so that no test has
//! to wait.

mod anchor;

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

#[cfg(feature = "cpu-counter")]
use tower_ratelimit_cpu_counter::{EXISTS as HAS_COUNTER, ticks};

use self::anchor::{Anchor, Clocks};

#[cfg(not(feature = "cpu-counter"))]
const HAS_COUNTER: bool = false;

#[cfg(not(feature = "cpu-counter"))]
const fn ticks() -> u64 {
    0
}

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
/// With the feature `cpu-counter`, which is on by default, most reads are of the CPU's counter, on x86-64 and AArch64:
///
/// - The counter continues a read of the operating system's clock for at most 50 ms. Then that clock is read again.
///   Times differ from it by some microseconds.
/// - There is no calibration. The first reads are of the operating system's clock. The counter is read once its rate was
///   the same in two intervals, and its rate is measured anew in each.
/// - A counter is never read again in the process if it differs from the operating system's clock by more than a 128th of an
///   interval: it stepped, stopped or changed its rate, or only one of both clocks ran while the machine slept. If its time is
///   ahead then, the time stands still for less than 50 ms. If it stopped, its time is used for at most 50 ms after it
///   runs again.
/// - In one thread the time never steps back, whatever the counter does. Between threads it does not either if the
///   counters of all cores agree; processors execute a read up to a microsecond before earlier instructions. If the counters
///   of two cores differ by less than 0.4 ms, times in their threads differ by as much. If they differ by more, they do so by less
///   than 50 ms, until the next read of the operating system's clock that shows it.
///
/// [`wall`](Clock::wall) follows them: the wall clock is read with the operating system's other clock, at least once a second,
/// and by a difference of more than two seconds it is ahead or behind from then on. So a clock that is set after
/// the process began is right a second later. Where the monotonic clock stands still while the machine sleeps,
/// as in Linux, buckets do not refill meanwhile, and windows end.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct OsClock;

impl OsClock {
    /// The clock. All clocks of this type in one process agree.
    pub const fn new() -> Self {
        Self
    }

    #[doc(hidden)]
    pub fn wall_now() -> Timestamp {
        Self.wall(Self.now())
    }

    #[cfg(feature = "tokio")]
    #[doc(hidden)]
    pub fn ahead() -> i64 {
        let _ = Self::wall_now();
        ANCHOR.ahead()
    }

    /// The wall clock's time of a time of this clock, as both are apart now.
    pub(crate) fn wall_of(time: Timestamp) -> Timestamp {
        let now = Self.now();
        let wall = Self.wall(now);
        ClockReading::new(now, wall).at(time).wall
    }
}

/// The anchor of this process.
#[cfg(not(all(test, check_model)))]
static ANCHOR: Anchor = Anchor::new();
#[cfg(all(test, check_model))]
static ANCHOR: LazyLock<Anchor> = LazyLock::new(Anchor::default);

impl Clock for OsClock {
    fn now(&self) -> Timestamp {
        thread_local! {
            static LAST: Cell<u64> = const { Cell::new(0) };
        }
        Timestamp(if HAS_COUNTER {
            LAST.with(|last| ANCHOR.now(last, &Machine))
        } else {
            Machine.os()
        })
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        Timestamp(ANCHOR.wall(now.0, &Machine))
    }
}

/// The clocks of the machine that this process runs on.
struct Machine;

impl Clocks for Machine {
    fn ticks(&self) -> u64 {
        ticks()
    }

    fn os(&self) -> u64 {
        static START: LazyLock<(Timestamp, Instant)> =
            LazyLock::new(|| (wall_clock(), Instant::now()));
        let (wall, monotonic) = *START;
        wall.saturating_add(monotonic.elapsed()).0
    }

    fn wall(&self) -> u64 {
        wall_clock().0
    }
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
/// use tower_ratelimit::{Key, LocalLimiter, Quota, clock::ManualClock};
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
/// use tower_ratelimit::{Key, LocalLimiter, Quota, clock::TokioClock};
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

/// A limiter's clock. An indirect call for each read keeps the clock out of the limiter's type.
#[derive(Clone)]
#[doc(hidden)]
pub struct SharedClock(Arc<dyn Clock>);

#[doc(hidden)]
impl SharedClock {
    pub fn new(clock: impl Clock) -> Self {
        Self(Arc::new(clock))
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.0.now()
    }

    #[inline]
    pub fn read(&self) -> ClockReading {
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

/// A point in time: whole microseconds since 1970-01-01T00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The timestamp that is `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The timestamp that is `seconds` after the epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Nanoseconds since the epoch, saturating in the year 2554.
    #[doc(hidden)]
    pub const fn as_nanos(self) -> u64 {
        self.0.saturating_mul(1_000)
    }

    /// This timestamp plus `duration`, rounded down to microseconds and saturating.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_micros(duration)))
    }

    /// This timestamp minus `duration`, rounded down to microseconds and saturating.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(whole_micros(duration)))
    }
}

const fn whole_micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_micros() as u64)
}

/// The longest time that a charge may lie before the instant of its decision.
const MOST_LATENESS: Duration = Duration::from_millis(5);

/// A reading of a clock: its own time, and the wall's.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct ClockReading {
    pub(crate) now: Timestamp,
    pub wall: Timestamp,
    /// How many nanoseconds ago the wait of the request ended that is decided at this reading.
    pub(crate) late: u64,
}

#[doc(hidden)]
impl ClockReading {
    /// A reading of a clock whose time is the wall's.
    pub const fn alike(now: Timestamp) -> Self {
        Self::new(now, now)
    }

    const fn new(now: Timestamp, wall: Timestamp) -> Self {
        Self { now, wall, late: 0 }
    }

    /// The reading for a request whose timer is this late.
    pub(crate) fn for_timer(self, late: Duration) -> Self {
        let late = late.min(MOST_LATENESS).subsec_nanos().into();
        Self { late, ..self }
    }

    pub const fn as_nanos(self) -> u64 {
        self.now.as_nanos()
    }

    /// The reading at another time of the clock, by how the wall is ahead now.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        Self {
            now,
            wall: Timestamp(moved(now.0, self.now.0, self.wall.0)),
            ..self
        }
    }

    /// The nanosecond by the wall of one by the clock. 0, which is fresh or none, stays 0.
    pub(crate) const fn wall_of(self, nanos: u64) -> u64 {
        moved(nanos, self.now.as_nanos(), self.wall.as_nanos())
    }

    /// The nanosecond by the clock of one by the wall. 0, which is fresh or none, stays 0.
    pub(crate) const fn of_wall(self, nanos: u64) -> u64 {
        moved(nanos, self.wall.as_nanos(), self.now.as_nanos())
    }
}

/// `time` by a clock that is at `to` when the other is at `from`.
const fn moved(time: u64, from: u64, to: u64) -> u64 {
    match time {
        0 => 0,
        _ => (time.saturating_add(to.saturating_sub(from))).saturating_sub(from.saturating_sub(to)),
    }
}

/// Something should wait, and there is no timer.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
#[doc(hidden)]
pub struct NoTimer;

/// Starts a wait.
///
/// # Errors
///
/// Outside of a tokio runtime with a timer.
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub fn try_sleep(duration: Duration) -> Result<tokio::time::Sleep, NoTimer> {
    // Tokio panics where it has no timer, and no function of it checks that.
    std::panic::catch_unwind(|| tokio::time::sleep(duration)).map_err(|_| NoTimer)
}

impl fmt::Display for NoTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if cfg!(feature = "tokio") {
            "to delay requests, tower-ratelimit needs a tokio runtime with a timer: call `enable_time` or \
             `enable_all` of its builder"
        } else {
            "to delay requests, tower-ratelimit needs its feature `tokio`"
        })
    }
}

impl std::error::Error for NoTimer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moved_between_both_clocks() {
        let (now, wall) = (Timestamp::from_secs(1_000), Timestamp::from_secs(900));
        let reading = ClockReading::new(now, wall);
        assert_eq!(reading.wall_of(1_000_000_000_001), 900_000_000_001);
        assert_eq!(reading.of_wall(900_000_000_001), 1_000_000_000_001);
        assert_eq!((reading.wall_of(0), reading.of_wall(0)), (0, 0));
        assert_eq!(reading.wall_of(1), 0);
        let before = reading.at(Timestamp::from_secs(950));
        assert_eq!(before.wall, Timestamp::from_secs(850));
    }
}
