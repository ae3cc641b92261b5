//! The watch: all ways in which files change, with notifications of the system and without.

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
