use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use redis::Value;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::book::{Book, Errand, LeaseName, Step};
use crate::limiter::redis::store::{RedisStore, Script, StoreError, StoreErrorKind};

/// So often, at least, is looked for what is due: what failed is soon repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The largest whole number up to which a Lua number counts exactly.
const MOST: u64 = (1 << 53) - 1;

/// So many subjects are dealt with at the same time.
const AT_ONCE: usize = 64;

static LEASES: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../script/leases.lua")));

/// Tells the server what becomes of leases.
pub(super) struct Keeper {
    store: RedisStore,
    limit: u64,
    lease: Duration,
    book: Mutex<Book>,
    /// Something has been dropped.
    dropped: Notify,
}

impl Keeper {
    pub(super) fn new(store: RedisStore, limit: u64, lease: Duration) -> Self {
        Self {
            store,
            limit,
            lease,
            book: Mutex::default(),
            dropped: Notify::new(),
        }
    }

    pub(super) const fn store(&self) -> &RedisStore {
        &self.store
    }

    /// The book is changed in single steps, so it is right even where a thread panicked.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a lease: how many more there may be, or `None` when it would be too many.
    pub(super) async fn acquire(
        &self,
        subject: &Arc<str>,
        name: LeaseName,
    ) -> Result<Option<u64>, StoreError> {
        let errand = self.book().releases_of(subject);
        let steps: Vec<_> = errand.steps.iter().map(Step::told).collect();
        let mut releases = InHand {
            keeper: self,
            errand: Some(errand),
        };
        let reply = self
            .call(subject, steps.into_iter().chain([(b"a", name)]))
            .await;
        releases.end(reply.as_ref().err());
        match reply?.last() {
            Some(Value::Int(left)) => Ok(u64::try_from(*left).ok()),
            _ => Err(StoreError::foreign("not the script's reply")),
        }
    }

    async fn call(
        &self,
        subject: &str,
        steps: impl IntoIterator<Item = (&'static [u8; 1], LeaseName)>,
    ) -> Result<Vec<Value>, StoreError> {
        let mut arguments = vec![
            self.limit.min(MOST).to_string().into_bytes(),
            self.lease.as_micros().to_string().into_bytes(),
        ];
        for (letter, name) in steps {
            arguments.extend([letter.to_vec(), name.to_vec()]);
        }
        let call = self.store.call(&LEASES, subject.as_bytes(), &arguments);
        match call.await? {
            Value::Array(values) => Ok(values),
            _ => Err(StoreError::foreign("not the script's reply")),
        }
    }

    /// The next time at which a lease that was given or renewed at `now` is renewed: so early that
    /// two renewals may fail.
    pub(super) fn renewal(&self, now: Instant) -> std::time::Instant {
        (now + self.lease / 3).into_std()
    }

    fn pause(&self) -> Duration {
        LONGEST_PAUSE.min(self.lease / 3)
    }

    /// Has the task woken that gives back what was dropped.
    pub(super) fn wake(&self) {
        self.dropped.notify_one();
    }

    /// Has a task look after the book. Without a runtime that is left to the next request.
    pub(super) fn keep(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.book().needs_keeper() {
            let task = Task {
                keeper: Arc::clone(self),
                is_over: false,
            };
            runtime.spawn(task.run());
        }
    }

    async fn run(&self, errands: Vec<Errand>) {
        let errands = errands.into_iter().map(|errand| InHand {
            keeper: self,
            errand: Some(errand),
        });
        let errands = stream::iter(errands);
        errands.for_each_concurrent(AT_ONCE, InHand::run).await;
    }
}

/// An errand that has failed unless it is done. So it has when the runtime ends in the middle.
struct InHand<'a> {
    keeper: &'a Keeper,
    errand: Option<Errand>,
}

impl InHand<'_> {
    async fn run(mut self) {
        let Some(errand) = &self.errand else { return };
        let now = Instant::now();
        let steps = errand.steps.iter().map(Step::told);
        let outcome = self.keeper.call(&errand.subject, steps).await;
        if outcome.is_ok() {
            self.keeper.book().done(errand, self.keeper.renewal(now));
        }
        self.end(outcome.err().as_ref());
    }

    /// It is over unless it failed. Where somebody has written over the leases, there is nothing to
    /// release.
    fn end(&mut self, error: Option<&StoreError>) {
        if error.is_none_or(|error| error.kind() == StoreErrorKind::ForeignData) {
            self.errand = None;
        }
    }
}

impl Step {
    /// The script's letter for it, and the lease's name.
    const fn told(&self) -> (&'static [u8; 1], LeaseName) {
        match self {
            Self::Renew(name) => (b"k", *name),
            Self::Release(dropped) => (b"r", dropped.name),
        }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            self.keeper.book().failed(errand);
        }
    }
}

/// The task that looks after the book as long as there is something in it.
struct Task {
    keeper: Arc<Keeper>,
    /// Whether another one may have taken its place.
    is_over: bool,
}

impl Task {
    async fn run(mut self) {
        let keeper = &*self.keeper;
        let mut pause_ends = Instant::now() + keeper.pause();
        while !keeper.book().dismisses_keeper() {
            let woken = timeout_at(pause_ends, keeper.dropped.notified()).await;
            if woken.is_ok() {
                let releases = keeper.book().releases();
                keeper.run(releases).await;
                continue;
            }
            let now = Instant::now();
            pause_ends = now + keeper.pause();
            keeper.book().strike(now.into_std(), keeper.lease);
            // Otherwise each subject would find out by itself that the server is not asked.
            if keeper.store.refusal().is_none() {
                let due = keeper.book().due(now.into_std());
                keeper.run(due).await;
            }
        }
        self.is_over = true;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // The runtime was shut down.
        if !self.is_over {
            self.keeper.book().lose_keeper();
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
