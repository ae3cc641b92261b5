//! The home of a store: the runtime on which its connection lives and its tasks run.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{Arc, OnceLock, mpsc},
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The runtime of a store's tasks.
///
/// A caller may be on a runtime that is driven only while it waits, or never again. So a store that
/// makes its connection itself has a runtime on a thread of its own, from its first use until the
/// last handle to it is dropped. A connection that was handed in, and a store of a user's own,
/// live on a runtime of the user's: their tasks run on that of the caller.
#[derive(Clone)]
pub(crate) struct Home(Option<Arc<OnceLock<Option<HomeThread>>>>);

/// A thread that drives a runtime until this is dropped.
struct HomeThread {
    runtime: Handle,
    _lives: oneshot::Sender<Infallible>,
}

impl Home {
    /// A thread of its own, which starts with the first use.
    pub(crate) fn own() -> Self {
        Self(Some(Arc::default()))
    }

    /// The runtimes of callers.
    pub(crate) const fn of_callers() -> Self {
        Self(None)
    }

    /// The runtime for tasks and timers; none where there is only the caller's and it has none.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        let own = self.0.as_ref().and_then(|own| {
            // A process that can start no thread goes on as well as it can.
            let thread = own.get_or_init(|| HomeThread::start().ok());
            thread.as_ref()
        });
        match own {
            Some(thread) => Some(thread.runtime.clone()),
            None => Handle::try_current().ok(),
        }
    }

    /// Whether a call can be made here.
    pub(crate) fn has_runtime(&self) -> bool {
        match &self.0 {
            Some(own) if matches!(own.get(), Some(Some(_))) => true,
            _ => self.runtime().is_some(),
        }
    }

    /// Has a task run; not at all without a runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(task);
        }
    }

    /// Polls a future as within the runtime, so that its timers and tasks belong there, whoever
    /// waits for it.
    pub(crate) async fn within<F: Future>(&self, future: F) -> F::Output {
        let runtime = self.runtime();
        let mut future = pin!(future);
        poll_fn(move |cx| {
            let _entered = runtime.as_ref().map(Handle::enter);
            future.as_mut().poll(cx)
        })
        .await
    }
}

impl HomeThread {
    fn start() -> io::Result<Self> {
        let (lives, ended) = oneshot::channel::<Infallible>();
        let (tell, started) = mpsc::sync_channel(1);
        let run = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let handle = runtime.as_ref().map(|runtime| runtime.handle().clone());
            let told = tell.send(handle.map_err(|error| io::Error::from(error.kind())));
            if let (Ok(runtime), Ok(())) = (runtime, told) {
                runtime.block_on(ended).ok();
                runtime.shutdown_background();
            }
        };
        let builder = thread::Builder::new().name("tower-ratelimit".to_owned());
        builder.spawn(run)?;
        let runtime = started.recv().map_err(io::Error::other)??;
        Ok(Self {
            runtime,
            _lives: lives,
        })
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Home").field(&self.0.is_some()).finish()
    }
}
