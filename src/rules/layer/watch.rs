//! The watch: reads rule files again when they change.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::handle::RulesHandle;
use crate::rules::{Format, builder::digest_of, set::RulesOrigin};

/// A file is written in several steps, and a directory changed in several files.
const QUIET: Duration = Duration::from_millis(250);

/// Where the system tells nothing: a file that is mounted by itself, a network's file system.
const POLL: Duration = Duration::from_secs(10);

/// Watches the files of a [`RulesLayer`](crate::rules::RulesLayer) until it is dropped. Made by
/// [`RulesHandle::watch`].
#[must_use = "the files are watched until this is dropped"]
pub struct RulesWatch {
    /// Nothing is sent on it: the thread ends when all its senders are gone.
    _running: Sender<()>,
    _watcher: Option<RecommendedWatcher>,
}

impl RulesHandle {
    /// Reads the files again whenever they change, on a thread of its own, until what is returned
    /// is dropped.
    ///
    /// The system tells of changes in the directories of the files, so one that is written, renamed
    /// over, or swapped as Kubernetes swaps a `ConfigMap` is noticed, and read after a quarter of a
    /// second without a further change. Every ten seconds the files are looked at anyway, for where
    /// the system tells nothing. Only another content is read as rules, see
    /// [`reload`](Self::reload) for what stays then; a fault changes nothing.
    ///
    /// Rules that did not come from files are not watched.
    pub fn watch(&self) -> RulesWatch {
        self.watch_by(true, POLL)
    }

    fn watch_by(&self, told: bool, poll: Duration) -> RulesWatch {
        let (sender, receiver) = mpsc::channel();
        let rules = self.rules();
        let paths = rules.origin().map_or(&[][..], |origin| &origin.paths);
        let watcher = told.then(|| watcher(paths, sender.clone())).flatten();
        if let Some(origin) = rules.origin() {
            let seen = Seen::new(self.clone(), origin);
            thread::spawn(move || seen.follow(&receiver, poll));
        }
        RulesWatch {
            _running: sender,
            _watcher: watcher,
        }
    }
}

/// Listens to the directories of the files, since a file that is renamed over is another one. Where
/// that does not work, looking from time to time has to do.
fn watcher(paths: &[PathBuf], sender: Sender<()>) -> Option<RecommendedWatcher> {
    let heard = move |event: notify::Result<notify::Event>| {
        // Reading the files is no news.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = sender.send(());
        }
    };
    let mut watcher = notify::recommended_watcher(heard).ok()?;
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

/// The files as they were when they were last read.
struct Seen {
    handle: RulesHandle,
    paths: Vec<PathBuf>,
    format: Option<Format>,
    digest: u64,
}

impl Seen {
    fn new(handle: RulesHandle, origin: &RulesOrigin) -> Self {
        Self {
            handle,
            paths: origin.paths.clone(),
            format: origin.format,
            digest: origin.digest,
        }
    }

    /// Reads the files again if they say something else.
    fn look(&mut self) {
        let digest = digest_of(&self.paths, self.format);
        if digest != self.digest {
            self.digest = digest;
            // The log and the observer have been told of a fault.
            drop(self.handle.reload());
        }
    }

    fn follow(mut self, changes: &Receiver<()>, poll: Duration) {
        // They may have changed since they were read for the first time.
        self.look();
        loop {
            match changes.recv_timeout(poll) {
                Ok(()) => settle(changes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }
}

/// Waits until nothing changes any more, but not for ever.
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
