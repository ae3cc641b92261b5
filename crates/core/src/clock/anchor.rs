//! The operating system's clock, continued by the CPU's counter, and the difference to the wall clock.
//!
//! An [`Anchor`] is a reading of all three. The time is the anchor's plus the ticks since then, for 50 ms; the next
//! reader after that makes a new anchor. The counter is used once two stretches between anchors had the same rate, and
//! never again after a stretch had another rate. So it needs no trust in advance, on any machine.
//!
//! The times of an anchor end before those of the next begin. If they have passed the operating system's clock, the next
//! anchor begins at their end, and its times run slower until both meet.

#[cfg(all(test, check_model))]
mod model;

#[cfg(all(test, check_model))]
use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use std::cell::Cell;
#[cfg(not(all(test, check_model)))]
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// The clocks of a machine. Times are microseconds.
pub(super) trait Clocks {
    /// The CPU's counter.
    fn ticks(&self) -> u64;

    /// The operating system's clock, which never steps.
    fn os(&self) -> u64;

    /// The wall clock.
    fn wall(&self) -> u64;
}

/// For how many microseconds of the operating system's clock the counter continues it.
const SPAN: u64 = 50_000;

/// The least microseconds between two anchors. The first ones, too: by shorter ones the rate is not known well.
const LEAST: u64 = 25_000;

/// The ticks of a span that a counter may have: from one in a microsecond to a million.
const PLAUSIBLE: std::ops::Range<u64> = SPAN + 1..SPAN << 20;

/// How many microseconds the counter's times are ahead of the operating system's clock: more than the error of a rate in a
/// span. Other threads read that clock while an anchor is moved, and later times are not behind theirs.
const LEAD: u64 = 4;

/// Rates are the same if they differ by at most this part: NTP changes the rate of the operating system's clock.
const SAME: u64 = 128;

/// In place of the ticks of a span: the counter is off for good. No counter has so few.
const OFF: u64 = 1;

/// The most microseconds that the wall clock may move against the other without a step. Less than that is drift.
const STEP: u64 = 2_000_000;

/// After so many microseconds without a new anchor the wall clock is read again.
const BETWEEN_LOOKS: u64 = 1_000_000;

/// The last reading of all clocks, in one cache line.
///
/// A seqlock: numbers belong together if `version` was even and the same before and after they were read.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Anchor {
    /// Twice the first microsecond that no time of this anchor and those before reaches, so no two anchors have the same. One
    /// more while a thread writes.
    version: AtomicU64,
    /// The counter.
    ticks: AtomicU64,
    /// The time at these ticks.
    time: AtomicU64,
    /// Microseconds of a tick, as a fraction of 2^64; 0 while the counter is not believed.
    slope: AtomicU64,
    /// Ticks in [`SPAN`], as measured between the last two anchors; 0 before there are two, or [`OFF`].
    span: AtomicU64,
    /// The operating system's clock at these ticks; 0 before the first anchor.
    os: AtomicU64,
    /// How many microseconds the wall clock is ahead of the operating system's.
    ahead: AtomicI64,
}

impl Anchor {
    #[cfg(not(all(test, check_model)))]
    pub(super) const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            time: AtomicU64::new(0),
            slope: AtomicU64::new(0),
            span: AtomicU64::new(0),
            os: AtomicU64::new(0),
            ahead: AtomicI64::new(0),
        }
    }

    /// The time now, no earlier than the last one of this thread, which it becomes.
    #[inline]
    pub(super) fn now(&self, last: &Cell<u64>, clocks: &impl Clocks) -> u64 {
        let now = self.time(clocks).max(last.get());
        last.set(now);
        now
    }

    /// The time now. While the counter does not step back, neither does this, between threads as well.
    #[inline]
    fn time(&self, clocks: &impl Clocks) -> u64 {
        match self.continued(clocks) {
            Some(time) => time,
            None => self.renew(clocks),
        }
    }

    /// The anchor's time and the ticks since then, if the counter is believed and has not passed the span. Ticks before the
    /// anchor's are past it.
    #[inline]
    fn continued(&self, clocks: &impl Clocks) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        let slope = self.slope.load(Ordering::Relaxed);
        if slope == 0 {
            return None;
        }
        let span = self.span.load(Ordering::Relaxed);
        let time = self.time.load(Ordering::Relaxed);
        let passed = clocks
            .ticks()
            .wrapping_sub(self.ticks.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        let since = ((u128::from(passed) * u128::from(slope)) >> 64) as u64;
        (is_whole && passed < span).then(|| time + since)
    }

    /// The wall clock's time at `now`, by the difference at its last read, at most a second before.
    #[inline]
    pub(super) fn wall(&self, now: u64, clocks: &impl Clocks) -> u64 {
        if now >= self.os.load(Ordering::Relaxed) + BETWEEN_LOOKS {
            self.renew(clocks);
        }
        now.saturating_add_signed(self.ahead())
    }

    /// How many microseconds the wall clock was ahead when it was read last.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// The time by the operating system's clock. The anchor is moved to it, unless it is young or another thread moves it.
    #[cold]
    #[inline(never)]
    fn renew(&self, clocks: &impl Clocks) -> u64 {
        loop {
            let version = self.version.load(Ordering::Acquire);
            // Another thread may have moved it since.
            if let Some(time) = self.continued(clocks) {
                return time;
            }
            let now = clocks.os();
            if version & 1 == 1 {
                return now.max(version >> 1);
            }
            if now.saturating_sub(self.os.load(Ordering::Relaxed)) < LEAST {
                let given = self.time.load(Ordering::Relaxed);
                let (span, slope) = (&self.span, &self.slope);
                let is_on = slope.load(Ordering::Relaxed) != 0;
                let behind = (self.ticks.load(Ordering::Relaxed)).wrapping_sub(clocks.ticks());
                let is_near = behind < span.load(Ordering::Relaxed) / SAME;
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) != version {
                    continue;
                }
                // Cores may differ by a little. A counter that is far behind, or ahead, contradicts the other clock.
                if !is_on || is_near {
                    return now.max(given);
                }
            }
            let reading = Reading::of(clocks);
            let (set, fetch) = (Ordering::Acquire, Ordering::Relaxed);
            let begin = (self.version).compare_exchange(version, version | 1, set, fetch);
            if begin.is_ok() {
                fence(Ordering::Release);
                let (time, end) = self.move_to(&reading, version >> 1);
                self.version.store(end << 1, Ordering::Release);
                return time;
            }
        }
    }

    /// Writes the anchor of the reading after one whose times end at `end`: its first time, and the end of its own.
    fn move_to(&self, reading: &Reading, end: u64) -> (u64, u64) {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let passed = reading.ticks.wrapping_sub(load(&self.ticks));
        let elapsed = reading.os.saturating_sub(load(&self.os));
        let measured = u128::from(passed) * u128::from(SPAN) / u128::from(elapsed.max(1));
        let measured = u64::try_from(measured).unwrap_or(u64::MAX);
        let known = load(&self.span);
        let is_plausible = elapsed >= LEAST && PLAUSIBLE.contains(&measured);
        let is_same = measured.abs_diff(known) <= known / SAME;
        let (span, is_believed) = match known {
            0 if load(&self.os) == 0 => (0, false),
            0 if is_plausible => (measured, false),
            _ if is_plausible && is_same => (measured, true),
            _ => (OFF, false),
        };
        let begin = reading.os + if is_believed { LEAD } else { 0 };
        let time = end.max(begin);
        let (slope, next_end) = if is_believed {
            let left = u128::from((begin + SPAN).saturating_sub(time));
            (((left << 64) / u128::from(span)) as u64, begin + SPAN)
        } else {
            (0, begin)
        };
        let ahead = reading.wall.wrapping_sub(reading.os).cast_signed();
        if ahead.abs_diff(self.ahead()) > STEP {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
        for (number, value) in [
            (&self.ticks, reading.ticks),
            (&self.time, time),
            (&self.slope, slope),
            (&self.span, span),
            (&self.os, reading.os),
        ] {
            number.store(value, Ordering::Relaxed);
        }
        (time, next_end.max(end + 1))
    }
}

/// All clocks at one instant.
struct Reading {
    ticks: u64,
    os: u64,
    wall: u64,
}

impl Reading {
    /// The best of three: a thread may lose its processor between two clocks.
    fn of(clocks: &impl Clocks) -> Self {
        let read = |_| {
            let (ticks, os) = (clocks.ticks(), clocks.os());
            (clocks.ticks().wrapping_sub(ticks), ticks, os)
        };
        let (_, ticks, os) = [0; 3].map(read).into_iter().min().unwrap_or_default();
        let wall = clocks.wall();
        Self { ticks, os, wall }
    }
}

#[cfg(all(test, not(check_model)))]
mod tests {
    use std::{
        cell::Cell,
        sync::atomic::{AtomicU64, Ordering},
        thread,
    };

    use super::{Anchor, Clocks, LEAD, LEAST, SPAN};

    const START: u64 = 1_000_000_000_000;
    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;
    /// Nanoseconds.
    const MICRO: u64 = 1_000;

    /// Clocks that a test moves.
    struct Fake {
        /// Nanoseconds of the operating system's clock.
        os: Cell<u64>,
        ticks: Cell<u64>,
        /// Ticks of a nanosecond.
        rate: Cell<u64>,
        /// Microseconds that the wall clock is ahead.
        ahead: Cell<i64>,
        os_reads: Cell<u32>,
        wall_reads: Cell<u32>,
        /// The number of the read of the operating system's clock before which the thread stops for 10 ms.
        stop_before: Cell<u32>,
    }

    impl Fake {
        fn new() -> Self {
            Self {
                os: Cell::new(START * MICRO),
                // It overflows soon.
                ticks: Cell::new(u64::MAX - 1_000_000),
                rate: Cell::new(3),
                ahead: Cell::new(0),
                os_reads: Cell::new(0),
                wall_reads: Cell::new(0),
                stop_before: Cell::new(u32::MAX),
            }
        }

        fn pass_os(&self, nanos: u64) {
            self.os.set(self.os.get() + nanos);
        }

        fn pass_ticks(&self, nanos: u64) {
            self.ticks
                .set(self.ticks.get().wrapping_add(nanos * self.rate.get()));
        }

        fn pass(&self, nanos: u64) {
            self.pass_os(nanos);
            self.pass_ticks(nanos);
        }

        fn micros(&self) -> u64 {
            self.os.get() / MICRO
        }
    }

    impl Clocks for Fake {
        fn ticks(&self) -> u64 {
            self.ticks.get()
        }

        fn os(&self) -> u64 {
            if self.os_reads.replace(self.os_reads.get() + 1) == self.stop_before.get() {
                self.pass(10_000 * MICRO);
            }
            self.micros()
        }

        fn wall(&self) -> u64 {
            self.wall_reads.set(self.wall_reads.get() + 1);
            self.micros().saturating_add_signed(self.ahead.get())
        }
    }

    /// An anchor and its clocks, and the last time that it given.
    struct Watched {
        anchor: Anchor,
        fake: Fake,
        last: Cell<u64>,
    }

    impl Watched {
        fn new() -> Self {
            Self {
                anchor: Anchor::new(),
                fake: Fake::new(),
                last: Cell::new(0),
            }
        }

        /// One whose counter is believed.
        fn believed() -> Self {
            let this = Self::new();
            for _ in 0..3 {
                this.now();
                this.fake.pass(SPAN * MICRO);
            }
            this.now();
            assert!(this.is_on());
            this
        }

        fn is_on(&self) -> bool {
            self.anchor.slope.load(Ordering::Relaxed) != 0
        }

        /// Whether the counter is never believed again, nor even if its rate is right again.
        fn is_off_for_good(&self) -> bool {
            for _ in 0..10 {
                self.fake.pass(SPAN * MICRO);
                self.now();
            }
            !self.is_on()
        }

        /// How far the time is ahead of the operating system's clock. It never steps back.
        fn now(&self) -> i64 {
            let time = self.anchor.time(&self.fake);
            assert!(time >= self.last.get(), "{time} after {}", self.last.get());
            self.last.set(time);
            time.wrapping_sub(self.fake.micros()).cast_signed()
        }

        /// How far the time of a thread is ahead. The counter may step back.
        fn now_of_the_thread(&self) -> i64 {
            let last = self.last.get();
            let now = self.anchor.now(&self.last, &self.fake);
            assert!(now >= last, "{now} after {last}");
            now.wrapping_sub(self.fake.micros()).cast_signed()
        }
    }

    #[test]
    fn the_first_reads_are_of_the_os_clock_and_then_the_counter_continues_it() {
        let watched = Watched::new();
        let reads = &watched.fake.os_reads;
        for _ in 0..2 * LEAST / 1_000 {
            let before = reads.get();
            assert_eq!((watched.now(), watched.is_on()), (0, false));
            assert!(reads.get() > before);
            watched.fake.pass(1_000 * MICRO);
        }
        let mut before = 0;
        for micro in 0..SPAN * 20 {
            let ahead = watched.now();
            assert!(
                (LEAD.cast_signed() - 2..=LEAD.cast_signed() + 2).contains(&ahead),
                "{ahead}"
            );
            if micro == 0 {
                before = reads.get();
            }
            watched.fake.pass(MICRO + 1);
        }
        // In a second, each of twenty reads with the best of three.
        assert_eq!((reads.get() - before) / 4, 20);
    }

    /// The clock is slewed by up to 500 millionths, now faster and now slower, and read at intervals of all lengths.
    #[test]
    fn now_never_steps_back_while_the_os_clock_is_slewed() {
        let watched = Watched::believed();
        let mut random = 1_u64;
        let mut slew = 0;
        for round in 0..200_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if round % 100 == 0 {
                slew = random >> 32 & 1_023;
            }
            let nanos = (random >> 40) >> (random >> 33 & 15);
            watched.fake.pass_ticks(nanos);
            watched
                .fake
                .pass_os(nanos - nanos * 500 / 1_000_000 + nanos * slew.min(1_000) / 1_000_000);
            let ahead = watched.now();
            assert!((-60..=60).contains(&ahead), "{ahead} µs ahead");
        }
        assert!(watched.is_on());
    }

    #[test]
    fn a_time_that_is_ahead_runs_slower_until_both_meet() {
        let watched = Watched::believed();
        // It goes as far as the counter, and the operating system's clock less.
        watched.fake.pass_ticks(SPAN * MICRO);
        watched.fake.pass_os((SPAN - 300) * MICRO);
        let lead = LEAD.cast_signed();
        assert_eq!(watched.now(), 300 + lead);
        // The rate is that of both by now.
        let go_on = || {
            watched.fake.pass_ticks(SPAN * MICRO / 10);
            watched.fake.pass_os((SPAN - 300) * MICRO / 10);
        };
        for part in 1..10 {
            go_on();
            let ahead = watched.now() - lead;
            assert!(
                ahead.abs_diff(300 - 30 * part) <= 3,
                "{ahead} µs ahead after {part} tenths"
            );
        }
        go_on();
        assert!(watched.now().abs_diff(lead) <= 3);
        assert!(watched.is_on());
    }

    /// Steps of the counter by some microseconds, shorter and longer than a span, at times between two anchors.
    #[test]
    fn a_counter_that_steps_is_off_for_good() {
        let steps = [
            1_000_i64,
            20_000,
            49_999,
            50_001,
            1_000_000,
            3_600_000_000,
            i64::MAX / 3_000,
        ];
        for step in steps.into_iter().flat_map(|step| [step, -step]) {
            for passed in [0, 1, 24_000, 26_000, 49_000] {
                let watched = Watched::believed();
                watched.fake.pass(passed * MICRO);
                watched.now();
                let ticks = watched.fake.ticks.get();
                watched
                    .fake
                    .ticks
                    .set(ticks.wrapping_add_signed(step * 3_000));
                while watched.is_on() {
                    // The time is never behind or ahead by more than a span.
                    let furthest = watched.now_of_the_thread().unsigned_abs();
                    assert!(furthest <= SPAN + LEAD, "{furthest}, {step} after {passed}");
                    watched.fake.pass(100 * MICRO);
                }
                watched.fake.pass(2 * SPAN * MICRO);
                assert_eq!(watched.now(), 0, "{step} after {passed}");
                assert!(watched.is_off_for_good(), "{step} after {passed}");
            }
        }
    }

    #[test]
    fn a_counter_that_changes_its_rate_is_off_for_good() {
        for (rate, most) in [(1, 2 * SPAN), (2, SPAN / 2), (4, SPAN / 3), (30, SPAN)] {
            let watched = Watched::believed();
            watched.fake.rate.set(rate);
            for _ in 0..200 {
                watched.fake.pass(1_000 * MICRO);
                assert!(watched.now().unsigned_abs() <= most + LEAD);
            }
            assert_eq!((watched.now(), watched.is_off_for_good()), (0, true));
        }
    }

    /// Two that are too slow, one that is too fast, and one that runs backwards.
    #[test]
    fn a_counter_that_cannot_be_one_is_never_believed() {
        for step in [0, 500, 1 << 40, 3_u64.wrapping_neg() << 30] {
            let watched = Watched::new();
            for _ in 0..20 {
                watched.fake.pass_os(1_000 * SPAN);
                watched
                    .fake
                    .ticks
                    .set(watched.fake.ticks.get().wrapping_add(step));
                assert_eq!((watched.now(), watched.is_on()), (0, false));
            }
            assert!(watched.is_off_for_good());
        }
    }

    #[test]
    fn after_a_sleep_the_time_is_that_of_the_os_clock() {
        const SLEPT: u64 = 8 * 3_600_000_000 * MICRO;
        type Sleep = fn(&Fake);
        let sleeps: [(Sleep, bool); 5] = [
            // Both stand still, and both run.
            (|_| {}, true),
            (|fake| fake.pass(SLEPT), true),
            // One of both.
            (|fake| fake.pass_ticks(SLEPT), false),
            (|fake| fake.pass_os(SLEPT), false),
            // The counter begins anew.
            (|fake| (fake.pass_os(SLEPT), fake.ticks.set(0)).1, false),
        ];
        for (number, (sleep, stays)) in sleeps.into_iter().enumerate() {
            let watched = Watched::believed();
            watched.fake.pass(10_000 * MICRO);
            watched.now();
            sleep(&watched.fake);
            watched.fake.pass(1_000 * MICRO);
            // A counter that stood still alone is believed for the rest of the span.
            if number != 3 {
                assert!(watched.now().abs_diff(0) <= SPAN + LEAD, "sleep {number}");
            }
            for _ in 0..51 {
                watched.fake.pass(1_000 * MICRO);
                watched.now();
            }
            assert!(watched.now().abs_diff(0) <= 2 * LEAD, "sleep {number}");
            assert_eq!(watched.is_on(), stays, "sleep {number}");
            assert_ne!(watched.is_off_for_good(), stays, "sleep {number}");
        }
    }

    /// Two threads on cores whose counters differ by some nanoseconds read in turn.
    #[test]
    fn cores_that_differ_turn_the_counter_off() {
        for (apart, stays) in [
            (0, true),
            (300, true),
            (1_000_000, false),
            (20_000_000, false),
            (3_600_000_000_000, false),
        ] {
            let (anchor, fake) = (Anchor::new(), Fake::new());
            let last = [const { Cell::new(0) }; 2];
            for step in 0..10_000_usize {
                fake.pass(97 * MICRO);
                let (core, ticks) = (step % 2, fake.ticks.get());
                fake.ticks.set(ticks.wrapping_add(core as u64 * apart * 3));
                let now = anchor.now(&last[core], &fake);
                fake.ticks.set(ticks);
                assert!(now.abs_diff(fake.micros()) <= SPAN + LEAD, "{apart}");
            }
            let is_on = anchor.slope.load(Ordering::Relaxed) != 0;
            assert_eq!(is_on, stays, "{apart} ns apart");
        }
    }

    #[test]
    fn a_core_that_is_a_little_behind_a_new_anchor_is_no_contradiction() {
        let watched = Watched::believed();
        let ticks = &watched.fake.ticks;
        ticks.set(ticks.get().wrapping_sub(3 * 100 * MICRO));
        assert_eq!(watched.now(), LEAD.cast_signed());
        watched.fake.pass(SPAN * MICRO);
        watched.now();
        assert!(watched.is_on());
    }

    #[test]
    fn a_thread_that_stops_between_two_clocks_compares_others() {
        for number in 0..8 {
            let watched = Watched::believed();
            let reads = watched.fake.os_reads.get();
            watched.fake.stop_before.set(reads + number);
            for _ in 0..4 {
                watched.fake.pass(SPAN * MICRO);
                watched.now();
            }
            watched.fake.pass(MICRO);
            assert!(watched.now().abs_diff(LEAD.cast_signed()) <= 2);
            assert!(watched.is_on());
        }
    }

    #[test]
    fn while_another_thread_moves_the_anchor_the_time_is_the_os_clocks() {
        let watched = Watched::believed();
        watched.fake.pass(10_000 * MICRO);
        watched.now();
        watched.fake.pass((SPAN - 10_000) * MICRO);
        watched.anchor.version.fetch_or(1, Ordering::Relaxed);
        assert_eq!(watched.now(), LEAD.cast_signed());
        watched.fake.pass(10_000 * MICRO);
        assert_eq!(watched.now(), 0);
    }

    /// A thread that saw the end of an anchor may stop until another thread has made a new one.
    #[test]
    fn an_anchor_is_not_moved_before_its_end() {
        let watched = Watched::believed();
        watched.fake.pass(30_000 * MICRO);
        let version = watched.anchor.version.load(Ordering::Relaxed);
        let time = watched.anchor.renew(&watched.fake);
        assert!((time - watched.fake.micros()).abs_diff(LEAD) <= 1);
        assert_eq!(watched.anchor.version.load(Ordering::Relaxed), version);
    }

    /// Clocks that each read moves, for all threads.
    struct Shared(AtomicU64);

    impl Shared {
        fn nanos(&self) -> u64 {
            self.0.fetch_add(1_709, Ordering::SeqCst)
        }
    }

    impl Clocks for Shared {
        fn ticks(&self) -> u64 {
            self.nanos() * 3
        }

        fn os(&self) -> u64 {
            self.nanos() / MICRO
        }

        fn wall(&self) -> u64 {
            self.nanos() / MICRO
        }
    }

    #[test]
    fn the_time_of_two_threads_never_steps_back() {
        let (anchor, clocks) = (Anchor::new(), Shared(AtomicU64::new(START * MICRO)));
        let latest = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200_000 {
                        let before = latest.load(Ordering::SeqCst);
                        let now = anchor.time(&clocks);
                        assert!(now >= before, "{now} after {before}");
                        latest.fetch_max(now, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_ne!(anchor.slope.load(Ordering::Relaxed), 0, "it was believed");
    }

    /// How much the wall's time is ahead of the other, when in truth it is `really`.
    fn wall_ahead(watched: &Watched, really: i64) -> i64 {
        watched.fake.ahead.set(really);
        let now = watched.fake.micros();
        let wall = watched.anchor.wall(now, &watched.fake);
        wall.wrapping_sub(now).cast_signed()
    }

    #[test]
    fn a_step_of_the_wall_clock_is_followed_at_the_next_look() {
        for step in [20, -20, 72, -72].map(|hours| hours * HOUR) {
            let watched = Watched::new();
            assert_eq!(wall_ahead(&watched, 0), 0);
            watched.fake.pass(999_999 * MICRO);
            assert_eq!(wall_ahead(&watched, step), 0);
            watched.fake.pass(MICRO);
            assert_eq!(wall_ahead(&watched, step), step);
            watched.fake.pass(500_000 * MICRO);
            assert_eq!(wall_ahead(&watched, 0), step);
            watched.fake.pass(500_000 * MICRO);
            assert_eq!(wall_ahead(&watched, 0), 0, "and back");
        }
    }

    #[test]
    fn a_new_anchor_looks_at_the_wall_clock_too() {
        let watched = Watched::believed();
        watched.fake.ahead.set(HOUR);
        watched.fake.pass(SPAN * MICRO);
        watched.now();
        assert_eq!(wall_ahead(&watched, HOUR), HOUR);
    }

    #[test]
    fn a_sleep_counts_for_the_wall() {
        let watched = Watched::new();
        assert_eq!(wall_ahead(&watched, 0), 0);
        watched.fake.pass(1_000_001 * MICRO);
        // The monotone clock stood still.
        assert_eq!(wall_ahead(&watched, 8 * HOUR), 8 * HOUR);
    }

    #[test]
    fn drift_is_no_step() {
        let watched = Watched::new();
        for second in 0..=10_i64 {
            assert_eq!(wall_ahead(&watched, second * 200_000), 0);
            watched.fake.pass(1_000_000 * MICRO);
            assert_eq!(wall_ahead(&watched, -second * 200_000), 0);
            watched.fake.pass(1_000_000 * MICRO);
        }
        assert_eq!(wall_ahead(&watched, 2_000_001), 2_000_001);
        watched.fake.pass(1_000_000 * MICRO);
        assert_eq!(wall_ahead(&watched, 1), 2_000_001);
    }

    #[test]
    fn the_wall_clock_is_looked_at_once_a_second_at_most() {
        let watched = Watched::new();
        for _ in 0..10_000 {
            wall_ahead(&watched, 0);
            watched.fake.pass(1_000 * MICRO);
        }
        assert_eq!(watched.fake.wall_reads.get(), 10);
        // And it is read again after a time that is far ahead.
        let far = u64::MAX - 1;
        assert_eq!(watched.anchor.wall(far, &watched.fake), far);
        watched.fake.pass(1_000_000 * MICRO);
        assert_eq!(wall_ahead(&watched, 5 * SECOND), 5 * SECOND);
    }

    #[test]
    fn a_thread_that_finds_another_looking_takes_the_last_time() {
        let watched = Watched::new();
        watched.anchor.version.fetch_or(1, Ordering::Relaxed);
        assert_eq!(wall_ahead(&watched, HOUR), 0);
        watched.anchor.version.fetch_and(!1, Ordering::Relaxed);
        assert_eq!(wall_ahead(&watched, HOUR), HOUR);
    }
}
