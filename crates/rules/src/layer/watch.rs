//! The watch of rule files: a reload for each change.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::handle::RulesHandle;
use crate::{builder::digest_of, rule_set::RulesOrigin};
use tower_ratelimit_rulefile::Format;

/// The time without a change before a reload: a file is written in several steps, and a directory in several files.
const QUIET: Duration = Duration::from_millis(250);

/// The time between comparisons without a notification, for file systems that send none.
const POLL: Duration = Duration::from_secs(10);

/// Watches the files of a [`RulesLayer`](crate::RulesLayer) until it is dropped. Returned by
/// [`RulesHandle::watch`].
#[must_use = "the files are watched until this is dropped"]
pub struct RulesWatch {
    /// Keeps the thread running, which ends when all senders are dropped.
    _running: Sender<()>,
    _watcher: Option<RecommendedWatcher>,
}

impl RulesHandle {
    /// Reads the files again when they change, on a thread of its own, until the watch is dropped.
    ///
    /// It subscribes to the directories of the files, which covers files that are written, renamed over, or swapped as
    /// Kubernetes swaps a `ConfigMap`. A file is read after a quarter of a second without a further change. Every ten
    /// seconds the contents are also compared, for file systems without notifications and for a directory that is itself
    /// swapped, such as a link to a release. Unchanged contents are not read as
    /// rules. See [`reload`](Self::reload); a fault changes nothing.
    ///
    /// Rules that were not read from files are not watched.
    pub fn watch(&self) -> RulesWatch {
        self.watch_by(true, POLL)
    }

    fn watch_by(&self, notified: bool, poll: Duration) -> RulesWatch {
        let (sender, receiver) = mpsc::channel();
        let rules = self.rules();
        let paths = rules.origin().map_or(&[][..], |origin| &origin.paths);
        let watcher = notified.then(|| watcher(paths, sender.clone())).flatten();
        if let Some(origin) = rules.origin() {
            let files = WatchedFiles::new(self.clone(), origin);
            thread::spawn(move || files.follow(&receiver, poll));
        }
        RulesWatch {
            _running: sender,
            _watcher: watcher,
        }
    }
}

/// Subscribes to the directories of the files, since a file that is renamed over is another one. A failure is ignored: the
/// comparison every ten seconds remains.
fn watcher(paths: &[PathBuf], sender: Sender<()>) -> Option<RecommendedWatcher> {
    let notify = move |event: notify::Result<notify::Event>| {
        // Reading the files is no change.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = sender.send(());
        }
    };
    let mut watcher = notify::recommended_watcher(notify).ok()?;
    for path in paths {
        let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        drop(watcher.watch(parent, RecursiveMode::NonRecursive));
        if path.is_dir() {
            drop(watcher.watch(path, RecursiveMode::NonRecursive));
        }
    }
    Some(watcher)
}

/// The files, and their digest when they were last read.
struct WatchedFiles {
    handle: RulesHandle,
    paths: Vec<PathBuf>,
    format: Option<Format>,
    digest: u64,
}

impl WatchedFiles {
    fn new(handle: RulesHandle, origin: &RulesOrigin) -> Self {
        Self {
            handle,
            paths: origin.paths.clone(),
            format: origin.format,
            digest: origin.digest,
        }
    }

    fn compare(&mut self) {
        let digest = digest_of(&self.paths, self.format);
        if digest != self.digest {
            self.digest = digest;
            // The reload reports a fault to the log and the observer, whose panic does not end the watch.
            let reload = AssertUnwindSafe(|| drop(self.handle.reload()));
            let _ = catch_unwind(reload);
        }
    }

    fn follow(mut self, changes: &Receiver<()>, poll: Duration) {
        // The files may have changed since they were first read.
        self.compare();
        loop {
            match changes.recv_timeout(poll) {
                Ok(()) => settle(changes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.compare();
        }
    }
}

/// Waits until the files have not changed for a while, at most as long as a comparison takes to come.
fn settle(changes: &Receiver<()>) {
    let until = Instant::now() + POLL;
    while changes.recv_timeout(QUIET).is_ok() && Instant::now() < until {}
}

impl fmt::Debug for RulesWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesWatch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
