//! The keeper: the task that looks at a limiter's leases from time to time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

/// No time at which anybody looked.
const NEVER: u64 = u64::MAX;

/// A task may be this late before its runtime counts as one that nobody drives.
const LATE: Duration = Duration::from_millis(100);

/// The one task that looks. One that ends with its runtime, or whose runtime is not driven any more,
/// is followed by another.
#[derive(Debug)]
pub(super) struct LeaseKeeper(Arc<KeeperWatch>);

/// When a keeper looked last.
#[derive(Debug)]
struct KeeperWatch {
    began_at: Instant,
    /// The number of the keeper that looks; those before it end when they find that out.
    number: AtomicU64,
    /// In microseconds since the beginning.
    looked_at: AtomicU64,
}

/// Says that the task has ended.
struct KeeperEnd {
    watch: Arc<KeeperWatch>,
    number: u64,
}

impl LeaseKeeper {
    pub(super) fn new() -> Self {
        Self(Arc::new(KeeperWatch {
            began_at: Instant::now(),
            number: AtomicU64::new(0),
            looked_at: AtomicU64::new(NEVER),
        }))
    }

    /// Has a task `look` every `tick`, until what it looks at is dropped, unless one does so already
    /// or there is no runtime.
    pub(super) fn keep<T: Send + Sync + 'static>(
        &self,
        it: &Arc<T>,
        (tick, now): (Duration, Instant),
        runtime: impl FnOnce() -> Option<Handle>,
        look: fn(&T),
    ) {
        let watch = &self.0;
        let number = watch.number.load(Ordering::Acquire);
        if watch.is_kept(tick, now) {
            return;
        }
        let Some(runtime) = runtime() else {
            return;
        };
        let next = number + 1;
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let begins = watch
            .number
            .compare_exchange(number, next, order.0, order.1);
        if begins.is_err() {
            return;
        }
        watch.note(now);
        let own = KeeperEnd {
            watch: Arc::clone(watch),
            number: next,
        };
        let it = Arc::downgrade(it);
        runtime.spawn(async move {
            loop {
                sleep(tick).await;
                let Some(it) = it.upgrade().filter(|_| own.is_in_charge()) else {
                    return;
                };
                own.watch.note(Instant::now());
                look(&it);
            }
        });
    }
}

impl KeeperWatch {
    /// Whether a keeper looked lately. A clock that is another runtime's may be far from this one.
    fn is_kept(&self, tick: Duration, now: Instant) -> bool {
        let looked_at = self.looked_at.load(Ordering::Acquire);
        let late = u64::try_from((3 * tick + LATE).as_micros()).unwrap_or(u64::MAX);
        looked_at != NEVER && self.micros(now).abs_diff(looked_at) < late
    }

    fn note(&self, now: Instant) {
        self.looked_at.store(self.micros(now), Ordering::Release);
    }

    fn micros(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.began_at);
        u64::try_from(passed.as_micros()).unwrap_or(NEVER - 1)
    }
}

impl KeeperEnd {
    fn is_in_charge(&self) -> bool {
        self.watch.number.load(Ordering::Acquire) == self.number
    }
}

impl Drop for KeeperEnd {
    fn drop(&mut self) {
        if self.is_in_charge() {
            self.watch.looked_at.store(NEVER, Ordering::Release);
        }
    }
}
