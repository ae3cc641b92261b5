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
use crate::builder::digests;
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
            let files = WatchedFiles {
                handle: self.clone(),
                paths: origin.paths.clone(),
                format: origin.format,
                seen: Ok(origin.files.clone()),
            };
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

/// The files, and their names and digests when they were last read, or the fault then.
struct WatchedFiles {
    handle: RulesHandle,
    paths: Vec<PathBuf>,
    format: Option<Format>,
    seen: Result<Vec<(String, String)>, String>,
}

impl WatchedFiles {
    fn compare(&mut self) {
        let seen = digests(&self.paths, self.format);
        if seen != self.seen {
            self.seen = seen;
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
mod tests {
    use std::{
        fs,
        path::PathBuf,
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use tempfile::TempDir;

    use super::RulesWatch;
    use crate::{RulesHandle, RulesLayer};
    use tower_ratelimit_layer::observe::Event;

    /// A watched file, and the reloads that the observer receives. Waits have no end: a test fails by its
    /// runner's timeout and not on a busy machine.
    struct Watched {
        directory: TempDir,
        path: PathBuf,
        handle: RulesHandle,
        /// Whether each reload was accepted.
        reloads: Receiver<bool>,
        _watch: RulesWatch,
    }

    fn rules(name: &str) -> String {
        format!("rules: [{{name: {name}, quota: 3/hour}}]")
    }

    /// A poll interval that no test reaches: every reload comes from a notification.
    const NEVER: Duration = Duration::from_secs(86_400);

    impl Watched {
        fn notified() -> Self {
            Self::new(true, NEVER, |_| {})
        }

        fn polled() -> Self {
            Self::new(false, Duration::from_millis(1), |_| {})
        }

        fn new(notified: bool, poll: Duration, prepare: impl FnOnce(&TempDir)) -> Self {
            let directory = TempDir::new().expect("a directory");
            let path = directory.path().join("rules.yaml");
            prepare(&directory);
            if !path.exists() {
                fs::write(&path, rules("first")).expect("a file");
            }
            let (sender, reloads) = channel();
            let layer = RulesLayer::from_path(&path).expect("rules");
            let layer = layer.observer(move |event: &Event<'_>| {
                if let Event::RulesReloaded { error, .. } = event {
                    let _ = sender.send(error.is_none());
                }
            });
            let handle = layer.handle();
            Self {
                directory,
                path,
                _watch: handle.watch_by(notified, poll),
                handle,
                reloads,
            }
        }

        /// Waits until these rules are in force; a reload may come between the steps of a change.
        fn expect(&self, name: &str) {
            while self.reloads.recv().expect("a watch") {
                if self.handle.rules().names().eq([name]) {
                    return;
                }
            }
            self.expect(name);
        }

        /// Waits for a fault, which changes nothing.
        fn expect_fault(&self, kept: &str) {
            while self.reloads.recv().expect("a watch") {}
            assert!(self.handle.rules().names().eq([kept]));
        }
    }

    #[test]
    fn a_file_that_is_renamed_over_is_read() {
        for watched in [Watched::notified(), Watched::polled()] {
            let other = watched.directory.path().join("new.tmp");
            fs::write(&other, rules("second")).expect("a file");
            fs::rename(&other, &watched.path).expect("a file");
            watched.expect("second");
            // The new file is watched as the old one was.
            fs::write(&watched.path, rules("third")).expect("a file");
            watched.expect("third");
        }
    }

    #[test]
    fn a_file_that_is_truncated_and_written_is_read() {
        for watched in [Watched::notified(), Watched::polled()] {
            fs::write(&watched.path, "").expect("a file");
            fs::write(&watched.path, rules("second")).expect("a file");
            watched.expect("second");
        }
    }

    #[test]
    fn a_file_that_is_removed_or_unreadable_keeps_the_rules() {
        for watched in [Watched::notified(), Watched::polled()] {
            fs::remove_file(&watched.path).expect("a file");
            watched.expect_fault("first");
            fs::write(&watched.path, [0xff, 0xfe]).expect("a file");
            watched.expect_fault("first");
            fs::write(&watched.path, rules("second")).expect("a file");
            watched.expect("second");
        }
    }

    /// As the kubelet does it: the file is a link through `..data`, which is swapped.
    #[cfg(unix)]
    #[test]
    fn a_config_map_that_is_swapped_is_read() {
        use std::os::unix::fs::symlink;
        let version = |directory: &TempDir, name: &str| {
            let version = directory.path().join(format!("..{name}"));
            fs::create_dir(&version).expect("a directory");
            fs::write(version.join("rules.yaml"), rules(name)).expect("a file");
        };
        let mount = |directory: &TempDir| {
            version(directory, "first");
            let at = directory.path();
            symlink("..first", at.join("..data")).expect("a link");
            symlink("..data/rules.yaml", at.join("rules.yaml")).expect("a link");
        };
        for (notified, poll) in [(true, NEVER), (false, Duration::from_millis(1))] {
            let watched = Watched::new(notified, poll, mount);
            version(&watched.directory, "second");
            let at = watched.directory.path();
            symlink("..second", at.join("..data_tmp")).expect("a link");
            fs::rename(at.join("..data_tmp"), at.join("..data")).expect("a link");
            fs::remove_dir_all(at.join("..first")).expect("a directory");
            watched.expect("second");
        }
    }

    #[test]
    fn a_watch_begins_with_what_changed_before_it() {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules("first")).expect("a file");
        let (sender, reloads) = channel();
        let layer = RulesLayer::from_path(&path).expect("rules");
        let layer = layer.observer(move |_: &Event<'_>| {
            let _ = sender.send(());
        });
        fs::write(&path, rules("second")).expect("a file");
        let handle = layer.handle();
        let _watch = handle.watch_by(false, NEVER);
        reloads.recv().expect("a watch");
        assert!(handle.rules().names().eq(["second"]));
    }

    #[test]
    fn a_watch_goes_on_after_an_observer_that_panicked() {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules("first")).expect("a file");
        let (sender, reloads) = channel();
        let layer = RulesLayer::from_path(&path).expect("rules");
        let handle = layer
            .observer(move |event: &Event<'_>| {
                if let Event::RulesReloaded { .. } = event {
                    let _ = sender.send(());
                    panic!("in the observer");
                }
            })
            .handle();
        let _watch = handle.watch_by(false, Duration::from_millis(1));
        for name in ["second", "third"] {
            fs::write(&path, rules(name)).expect("a file");
            while !handle.rules().names().eq([name]) {
                reloads.recv().expect("a watch");
            }
        }
    }
}
