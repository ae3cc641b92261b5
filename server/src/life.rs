//! The life of the process: signals, and an end that loses no request.

use std::{future::Future, io, time::Duration};

use tokio::{sync::watch, time::timeout};
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

/// How long there is no connection until a drain ends before its time: callers without kept connections come again.
const NOBODY: Duration = Duration::from_secs(1);

/// Stops servers. Made by [`stop`].
pub(crate) struct Stop {
    stop: watch::Sender<bool>,
    open: watch::Receiver<usize>,
}

/// The stop as servers see it, which count their open connections with it.
#[derive(Clone)]
pub(crate) struct Stopped {
    pub(crate) stopped: watch::Receiver<bool>,
    open: watch::Sender<usize>,
}

/// A connection that is open until this is dropped.
pub(crate) struct OpenConnection(watch::Sender<usize>);

/// A stop, and its other end for servers.
pub(crate) fn stop() -> (Stop, Stopped) {
    let (stop, stopped) = watch::channel(false);
    let (count, open) = watch::channel(0);
    let stopped = Stopped {
        stopped,
        open: count,
    };
    (Stop { stop, open }, stopped)
}

impl Stop {
    /// Has servers take no more requests.
    pub(crate) fn now(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until there has been no connection for a while.
    async fn nobody(&self) {
        let mut open = self.open.clone();
        loop {
            // Without servers there is nobody, either.
            if open.wait_for(|open| *open == 0).await.is_err() {
                return;
            }
            let newcomer = timeout(NOBODY, open.wait_for(|open| *open > 0));
            if !matches!(newcomer.await, Ok(Ok(_))) {
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

/// Goes on for as long as callers may need to notice, or until there are none; then has servers take no more requests,
/// and waits for `all` that are under way. False if these took too long.
pub(crate) async fn drain(drain: Duration, stop: &Stop, all: impl Future<Output = ()>) -> bool {
    drop(timeout(drain, stop.nobody()).await);
    stop.now();
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

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn end_says_whether_all_is_answered() {
        let (stop, Stopped { stopped, .. }) = stop();
        assert!(drain(Duration::from_secs(5), &stop, wait(stopped)).await);
        assert!(!drain(Duration::ZERO, &stop, pending()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_ends_when_nobody_is_left() {
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
    async fn drain_waits_for_those_who_come_again() {
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
