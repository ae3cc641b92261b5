//! One background task at a time, replaced when its runtime shuts down or stalls.

use std::{
    future::Future,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::runtime::Handle;

/// `expires_at` of a slot without a run.
const FREE: u64 = 0;

/// A periodic task may be this much later than three of its ticks before it counts as stalled.
const LATE: Duration = Duration::from_millis(100);

/// Instants are counted from this long before the slot was made, so that a caller with a paused
/// clock that is behind can claim it, too.
const BEFORE: Duration = Duration::from_secs(60 * 60);

/// The slot of a task that runs once at a time.
///
/// A [`Run`] holds the slot until it is dropped, with its runtime if need be. A runtime can also
/// stall for ever, as one that is driven only while somebody waits: so a run expires `limit` after
/// it began or was last renewed, and the next caller replaces it.
#[derive(Debug)]
pub struct Solo(Arc<TaskSlot>);

#[derive(Debug)]
struct TaskSlot {
    origin: Instant,
    limit: Duration,
    /// The number of the latest run, from 1.
    latest: AtomicU64,
    /// In microseconds since `origin`; `FREE` without a run.
    expires_at: AtomicU64,
}

/// The right of one task to run. Dropping it frees the slot, unless another run has replaced it.
#[derive(Debug)]
pub struct Run {
    slot: Arc<TaskSlot>,
    number: u64,
    replaces_lost: bool,
}

impl Solo {
    /// A free slot, whose runs expire after `limit` unless they are renewed.
    pub(crate) fn new(limit: Duration) -> Self {
        let now = tokio::time::Instant::now().into_std();
        Self(Arc::new(TaskSlot {
            origin: now.checked_sub(BEFORE).unwrap_or(now),
            limit,
            latest: AtomicU64::new(0),
            expires_at: AtomicU64::new(FREE),
        }))
    }

    /// The slot of a task that renews its run every `tick`.
    pub fn every(tick: Duration) -> Self {
        Self::new(tick.saturating_mul(3).saturating_add(LATE))
    }

    /// Spawns the task on the runtime, unless one runs already or there is no runtime.
    pub fn keep<F>(
        &self,
        now: Instant,
        runtime: impl FnOnce() -> Option<Handle>,
        task: impl FnOnce(Run) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        if !self.is_running(now)
            && let Some(runtime) = runtime()
            && let Some(run) = self.begin(now)
        {
            runtime.spawn(task(run));
        }
    }

    /// Claims the slot, unless another run holds it.
    pub(crate) fn begin(&self, now: Instant) -> Option<Run> {
        let slot = &*self.0;
        let before = slot.expires_at.load(Ordering::Acquire);
        if slot.is_running(before, now) {
            return None;
        }
        let claimed = slot.expires_at.compare_exchange(
            before,
            slot.expiry(now),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        claimed.ok().map(|before| self.run_after(before))
    }

    /// Claims the slot, whether or not another run holds it.
    pub(crate) fn replace(&self, now: Instant) -> Run {
        let slot = &*self.0;
        let before = slot.expires_at.swap(slot.expiry(now), Ordering::AcqRel);
        self.run_after(before)
    }

    fn run_after(&self, expires_at: u64) -> Run {
        Run {
            number: self.0.latest.fetch_add(1, Ordering::AcqRel) + 1,
            slot: Arc::clone(&self.0),
            replaces_lost: expires_at != FREE,
        }
    }

    /// Whether a run holds the slot and has not expired.
    pub(crate) fn is_running(&self, now: Instant) -> bool {
        let expires_at = self.0.expires_at.load(Ordering::Acquire);
        self.0.is_running(expires_at, now)
    }

    /// Whether a run has expired and was not replaced yet.
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        let expires_at = self.0.expires_at.load(Ordering::Acquire);
        expires_at != FREE && !self.0.is_running(expires_at, now)
    }
}

impl TaskSlot {
    /// Threads read the clock a moment before or after each other, so twice the limit may be left.
    /// A time beyond that is from a paused clock that is far ahead.
    fn is_running(&self, expires_at: u64, now: Instant) -> bool {
        let left = expires_at.wrapping_sub(self.micros(now));
        let plausible: RangeInclusive<u64> = 1..=micros_of(self.limit).saturating_mul(2);
        plausible.contains(&left)
    }

    fn expiry(&self, now: Instant) -> u64 {
        self.micros(now)
            .saturating_add(micros_of(self.limit))
            .max(FREE + 1)
    }

    fn micros(&self, now: Instant) -> u64 {
        micros_of(now.saturating_duration_since(self.origin))
    }
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Run {
    /// One more than that of the run before, from 1.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether the run before never ended.
    pub(crate) const fn replaces_lost(&self) -> bool {
        self.replaces_lost
    }

    /// Holds the slot for another `limit`; false if another run has replaced this one, which then
    /// has to end.
    pub fn renew(&self, now: Instant) -> bool {
        let is_latest = self.is_latest();
        if is_latest {
            let expires_at = self.slot.expiry(now);
            self.slot.expires_at.store(expires_at, Ordering::Release);
        }
        is_latest
    }

    /// Frees the slot; false if another run has replaced this one.
    pub fn end(self) -> bool {
        self.is_latest()
    }

    fn is_latest(&self) -> bool {
        self.slot.latest.load(Ordering::Acquire) == self.number
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_latest() {
            self.slot.expires_at.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Mutex};

    use tokio::{
        runtime::{Builder, Runtime},
        time::{self, advance, sleep},
    };

    use super::*;
    use tower_ratelimit_core::lock::unpoisoned;

    const TICK: Duration = Duration::from_secs(1);

    fn now() -> Instant {
        time::Instant::now().into_std()
    }

    fn runtime() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().build().expect("a runtime")
    }

    /// The numbers of runs, one for each tick.
    type Ticks = Arc<Mutex<Vec<u64>>>;

    fn keep(solo: &Solo, ticks: &Ticks, handle: Handle) {
        let ticks = Arc::clone(ticks);
        let task = |run: Run| async move {
            loop {
                sleep(TICK).await;
                if !run.renew(now()) {
                    return;
                }
                unpoisoned(ticks.lock()).push(run.number());
            }
        };
        solo.keep(now(), || Some(handle), task);
    }

    fn taken(ticks: &Ticks) -> Vec<u64> {
        std::mem::take(&mut *unpoisoned(ticks.lock()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_runs_at_a_time_for_as_long_as_it_renews_its_run() {
        let (solo, ticks) = (Solo::every(TICK), Ticks::default());
        for _ in 0..10 {
            keep(&solo, &ticks, Handle::current());
            sleep(TICK).await;
        }
        sleep(TICK / 2).await;
        assert_eq!(taken(&ticks), [1; 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_runs_without_a_runtime() {
        let solo = Solo::every(TICK);
        solo.keep(now(), || None, |_| pending());
        assert!(!solo.is_running(now()) && !solo.is_lost(now()));
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_ended_is_replaced_at_once() {
        let solo = Solo::every(TICK);
        for number in 1..4 {
            let run = solo.begin(now()).expect("the slot is free");
            assert_eq!((run.number(), run.replaces_lost()), (number, false));
            assert!(solo.begin(now()).is_none());
            assert!(run.end());
            assert!(!solo.is_running(now()));
        }
    }

    #[test]
    fn task_of_a_runtime_that_was_shut_down_is_replaced_at_once() {
        let (solo, ticks) = (Solo::every(TICK), Ticks::default());
        let first = runtime();
        keep(&solo, &ticks, first.handle().clone());
        assert!(solo.is_running(now()));
        drop(first);
        assert!(!solo.is_running(now()) && !solo.is_lost(now()));
        let second = runtime();
        keep(&solo, &ticks, second.handle().clone());
        assert!(solo.is_running(now()));
    }

    #[tokio::test(start_paused = true)]
    async fn task_of_a_runtime_that_stalls_is_replaced_after_its_limit() {
        let (solo, ticks) = (Solo::new(3 * TICK), Ticks::default());
        let stalled = solo.begin(now()).expect("the slot is free");
        advance(3 * TICK - Duration::from_millis(1)).await;
        keep(&solo, &ticks, Handle::current());
        assert!(!solo.is_lost(now()));
        advance(Duration::from_millis(1)).await;
        assert!(solo.is_lost(now()));
        keep(&solo, &ticks, Handle::current());
        assert!(solo.is_running(now()));
        sleep(TICK + TICK / 2).await;
        assert_eq!(taken(&ticks), [2]);

        // It neither extends nor ends the run that has replaced it.
        assert!(!stalled.renew(now()));
        assert!(!stalled.end());
        assert!(solo.is_running(now()));
        sleep(TICK).await;
        assert_eq!(taken(&ticks), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_that_replaces_a_lost_one_knows_it() {
        let solo = Solo::new(TICK);
        let lost = solo.begin(now()).expect("the slot is free");
        advance(TICK).await;
        let run = solo.begin(now()).expect("the first one expired");
        assert!(run.replaces_lost());
        drop(lost);
        assert!(solo.is_running(now()));
    }

    /// Each paused runtime has a clock of its own.
    #[tokio::test(start_paused = true)]
    async fn clock_that_is_far_ahead_holds_the_slot_for_no_other() {
        let solo = Solo::new(TICK);
        let ahead = solo.begin(now() + 1_000 * TICK);
        assert!(ahead.is_some() && !solo.is_running(now()));
        assert!(solo.begin(now()).is_some());
    }
}
