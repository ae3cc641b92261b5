//! The life of the process: signals, and an end that loses no request.

use std::{future::Future, io, time::Duration};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use crate::notify;

/// How long requests that are under way may take when the process ends.
const LAST_REQUESTS: Duration = Duration::from_secs(20);

/// Goes on until the process is told to end, and then until `end` is over, which says whether all requests were
/// answered. SIGTERM and SIGINT end it, a second of either at once; SIGHUP calls `reload`.
pub(crate) async fn live(
    mut signals: Signals,
    mut reload: impl FnMut(),
    end: impl Future<Output = bool>,
) {
    notify::ready();
    while let Told::Reload = signals.next().await {
        notify::reloading();
        reload();
        notify::ready();
    }
    notify::stopping();
    info!("not ready any more");
    tokio::select! {
        all = end => match all {
            true => info!("all requests are answered"),
            false => warn!("requests are cut off that took more than {LAST_REQUESTS:?}"),
        },
        () = signals.end() => warn!("told twice to end"),
    }
}

/// Goes on for as long as callers may need to notice; then has servers take no more requests, and waits for `all`
/// that are under way. False if these took too long.
pub(crate) async fn drain(
    drain: Duration,
    stop: &watch::Sender<bool>,
    all: impl Future<Output = ()>,
) -> bool {
    sleep(drain).await;
    stop.send_replace(true);
    timeout(LAST_REQUESTS, all).await.is_ok()
}

/// Waits for the word to stop.
pub(crate) async fn wait(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone ends the process, too.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// A word of the operating system to the process.
enum Told {
    End,
    Reload,
}

#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }

    async fn end(&mut self) {
        while let Told::Reload = self.next().await {}
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Told {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Told::End
    }

    async fn end(&mut self) {
        self.next().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn end_says_whether_all_is_answered() {
        let (stop, stopped) = watch::channel(false);
        assert!(drain(Duration::from_secs(5), &stop, wait(stopped)).await);
        assert!(!drain(Duration::ZERO, &stop, pending()).await);
    }
}
