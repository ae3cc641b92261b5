//! Shutdown of the process: signals, a drain that loses no request, and the probes that announce it.

use std::{
    future::{self, Future},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use http::StatusCode;
use tokio::{sync::watch, time::timeout};
use tracing::{info, warn};

/// How long active requests may take after the drain.
const LAST_REQUESTS: Duration = Duration::from_secs(20);

/// Runs until SIGTERM or SIGINT, and then until `end` completes. `end` returns whether all requests got their responses.
/// A second signal stops at once. SIGHUP calls `reload`.
pub async fn run(mut signals: Signals, mut reload: impl FnMut(), end: impl Future<Output = bool>) {
    ready();
    while let Signal::Reload = signals.next().await {
        reloading();
        reload();
        ready();
    }
    stopping();
    info!("not ready any more");
    tokio::select! {
        all = end => if all {
            info!("all requests are answered");
        } else {
            warn!("requests that took more than {LAST_REQUESTS:?} are cut off");
        },
        () = signals.end() => warn!("a second signal stops the process at once"),
    }
}

/// How long a drain waits without connections before it ends early: callers that do not keep connections may return.
const NO_CONNECTIONS: Duration = Duration::from_secs(1);

/// Stops servers. Made by [`stop`].
pub struct Stop {
    stop: watch::Sender<bool>,
    open: watch::Receiver<usize>,
}

/// The servers' half of a [`Stop`]. Servers count their open connections in it.
#[derive(Clone)]
pub struct Stopped {
    pub stopped: watch::Receiver<bool>,
    open: watch::Sender<usize>,
}

/// Counts a connection as open until it drops.
pub(crate) struct OpenConnection(watch::Sender<usize>);

/// Both halves of a stop.
pub fn stop() -> (Stop, Stopped) {
    let (stop, stopped) = watch::channel(false);
    let (count, open) = watch::channel(0);
    let stopped = Stopped {
        stopped,
        open: count,
    };
    (Stop { stop, open }, stopped)
}

impl Stop {
    /// Stops servers: they accept no more requests.
    pub fn now(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until no connection has been open for [`NO_CONNECTIONS`].
    async fn no_connections(&self) {
        let mut open = self.open.clone();
        loop {
            // All servers have ended.
            if open.wait_for(|open| *open == 0).await.is_err() {
                return;
            }
            let next = timeout(NO_CONNECTIONS, open.wait_for(|open| *open > 0));
            if !matches!(next.await, Ok(Ok(_))) {
                return;
            }
        }
    }
}

impl Stopped {
    pub(crate) fn opened(&self) -> OpenConnection {
        self.open.send_modify(|open| *open += 1);
        OpenConnection(self.open.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Waits for `drain`, or until there are no connections. Then stops the servers, and waits for `all`, which completes
/// with the last request. False if that takes longer than `LAST_REQUESTS`.
pub async fn drain(drain: Duration, stop: &Stop, all: impl Future<Output = ()>) -> bool {
    drop(timeout(drain, stop.no_connections()).await);
    stop.now();
    timeout(LAST_REQUESTS, all).await.is_ok()
}

/// Waits for the stop.
pub async fn wait(mut stopped: watch::Receiver<bool>) {
    // A dropped sender stops as well.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// Whether the service is stopping, which its readiness probe reports. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Makes the service not ready.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The probes of a service with this condition for readiness.
pub fn probes(is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static) -> Router {
    let route = |otherwise: StatusCode| {
        let is_ready = is_ready.clone();
        get(move || {
            future::ready(if is_ready() {
                (StatusCode::OK, "OK")
            } else {
                (otherwise, "not ready")
            })
        })
    };
    Router::new()
        .route("/healthz", get(async || "OK"))
        .route("/readyz", route(StatusCode::SERVICE_UNAVAILABLE))
        .route("/healthcheck", route(StatusCode::INTERNAL_SERVER_ERROR))
}

/// A signal of the operating system.
enum Signal {
    End,
    Reload,
}

#[cfg(unix)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }

    /// Waits for a signal that stops the process.
    pub async fn end(&mut self) {
        while let Signal::Reload = self.next().await {}
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
        Signal::End
    }

    /// Waits for a signal that stops the process.
    pub async fn end(&mut self) {
        self.next().await;
    }
}

/// The process serves requests.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    notify(&[sd_notify::NotifyState::Ready]);
}

/// The process reads its files again, until it is [`ready`].
fn reloading() {
    #[cfg(target_os = "linux")]
    if let Ok(now) = sd_notify::NotifyState::monotonic_usec_now() {
        notify(&[sd_notify::NotifyState::Reloading, now]);
    }
}

/// The process stops.
pub(crate) fn stopping() {
    #[cfg(target_os = "linux")]
    notify(&[sd_notify::NotifyState::Stopping]);
}

#[cfg(target_os = "linux")]
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    // A failed notification does not affect the service.
    drop(sd_notify::notify(state));
}

#[cfg(test)]
mod tests {
    use future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_returns_whether_all_requests_completed() {
        let (stop, Stopped { stopped, .. }) = stop();
        assert!(drain(Duration::from_secs(5), &stop, wait(stopped)).await);
        assert!(!drain(Duration::ZERO, &stop, pending()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_ends_early_without_connections() {
        let (stop, stopped) = stop();
        let took = async |ends: &[u64]| {
            for end in ends.iter().copied() {
                let connection = stopped.opened();
                tokio::spawn(async move {
                    sleep(Duration::from_secs(end)).await;
                    drop(connection);
                });
            }
            let begun = Instant::now();
            assert!(drain(Duration::from_secs(30), &stop, async {}).await);
            begun.elapsed().as_secs()
        };
        assert_eq!(took(&[]).await, 1);
        assert_eq!(took(&[3, 7]).await, 8);
        assert_eq!(took(&[60]).await, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_callers_that_return() {
        let (stop, stopped) = stop();
        let calls = tokio::spawn(async move {
            for _ in 0..10 {
                let connection = stopped.opened();
                sleep(Duration::from_millis(100)).await;
                drop(connection);
                sleep(Duration::from_millis(900)).await;
            }
        });
        let begun = Instant::now();
        assert!(drain(Duration::from_secs(30), &stop, async {}).await);
        assert!(calls.is_finished() && begun.elapsed() < Duration::from_secs(11));
    }
}
