//! The runtime of a store: its connection and its tasks run there.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    panic::catch_unwind,
    sync::{Arc, LazyLock, OnceLock, mpsc},
    thread::{self, ThreadId},
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    time::{Instant, sleep_until},
};

/// The runtime of a store's tasks.
///
/// A caller may be on a runtime that is driven only while it waits, or never again. A store that
/// opens its own connection therefore has a runtime on a thread of its own, from its first use
/// until its last handle is dropped. A connection that was handed in, and a store of a user's own,
/// live on a runtime of the user: their tasks run on the caller's runtime.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Home(Option<Arc<OnceLock<Option<HomeThread>>>>);

/// A thread that drives a runtime until this is dropped.
struct HomeThread {
    runtime: Handle,
    thread: ThreadId,
    _lives: oneshot::Sender<Infallible>,
}

impl Home {
    /// Selects a thread of the store's own, started by the first use.
    pub(crate) fn own() -> Self {
        Self(Some(Arc::default()))
    }

    /// Selects the runtimes of callers.
    pub const fn of_callers() -> Self {
        Self(None)
    }

    /// Returns the runtime for tasks and timers. `None` if only the caller's counts and there is
    /// none, or one without a timer.
    pub fn runtime(&self) -> Option<Handle> {
        let own = self.0.as_ref().and_then(|own| {
            // If the process cannot start a thread, calls use the caller's runtime.
            let thread = own.get_or_init(|| HomeThread::start().ok());
            thread.as_ref()
        });
        match own {
            Some(thread) => Some(thread.runtime.clone()),
            None => Handle::try_current().ok().filter(|_| has_timer()),
        }
    }

    /// Whether the caller is on the store's own thread; `None` if the store has none.
    pub(crate) fn is_here(&self) -> Option<bool> {
        let thread = self.0.as_ref()?.get()?.as_ref()?;
        Some(thread.thread == thread::current().id())
    }

    /// Spawns a task; without a runtime the task is dropped.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(task);
        }
    }

    /// Polls a future within the runtime's context, so that its timers and tasks belong to that
    /// runtime whoever awaits it. Boxed, since calls of a store are large, and those around them are
    /// moved.
    pub fn within<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let runtime = self.runtime();
        let mut future = Box::pin(future);
        poll_fn(move |cx| {
            let _entered = runtime.as_ref().map(Handle::enter);
            future.as_mut().poll(cx)
        })
    }
}

/// Whether the current runtime has a timer: tokio panics where it has none, and no function of it checks that.
fn has_timer() -> bool {
    static ANY: LazyLock<Instant> = LazyLock::new(Instant::now);
    let any = *ANY;
    catch_unwind(|| sleep_until(any)).is_ok()
}

impl HomeThread {
    fn start() -> io::Result<Self> {
        let (lives, ended) = oneshot::channel::<Infallible>();
        let (sender, started) = mpsc::sync_channel(1);
        let run = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let handle = runtime.as_ref().map(|runtime| runtime.handle().clone());
            let sent = sender.send(handle.map_err(|error| io::Error::from(error.kind())));
            if let (Ok(runtime), Ok(())) = (runtime, sent) {
                runtime.block_on(ended).ok();
                runtime.shutdown_background();
            }
        };
        let builder = thread::Builder::new().name("tower-ratelimit".to_owned());
        let thread = builder.spawn(run)?.thread().id();
        let runtime = started.recv().map_err(io::Error::other)??;
        Ok(Self {
            runtime,
            thread,
            _lives: lives,
        })
    }
}
