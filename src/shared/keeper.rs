//! The keeper: the task that looks at a limiter's leases from time to time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, time::sleep};

/// Whether there is such a task. One that ends with its runtime is followed by another.
#[derive(Debug, Default)]
pub(super) struct LeaseKeeper(Arc<AtomicBool>);

/// Says that the task has ended.
struct KeeperEnd(Arc<AtomicBool>);

impl LeaseKeeper {
    /// Has a task `look` every `tick`, until what it looks at is dropped, unless one does so already
    /// or there is no runtime.
    pub(super) fn keep<T: Send + Sync + 'static>(&self, it: &Arc<T>, tick: Duration, look: fn(&T)) {
        if self.0.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.0.swap(true, Ordering::AcqRel) {
            return;
        }
        let (ended, it) = (KeeperEnd(Arc::clone(&self.0)), Arc::downgrade(it));
        runtime.spawn(async move {
            let _ended = ended;
            loop {
                sleep(tick).await;
                let Some(it) = it.upgrade() else { return };
                look(&it);
            }
        });
    }
}

impl Drop for KeeperEnd {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
