//! A file of rules that tests change, and a service under them.

use std::{fs, path::PathBuf};

use tempfile::TempDir;
use tower_ratelimit::{
    clock::ManualClock,
    observe::Event,
    rules::{Rules, RulesHandle, RulesLayer},
};

use super::layer::{Ruled, store};

pub(crate) struct RulesFile {
    _directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) ruled: Ruled,
    pub(crate) handle: RulesHandle,
}

impl RulesFile {
    pub(crate) fn new(text: &str) -> Self {
        Self::observed(text, |_: &Event<'_>| {})
    }

    pub(crate) fn observed(
        text: &str,
        observer: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, text).expect("a file");
        let clock = ManualClock::new();
        let rules = Rules::builder().store(store(&clock)).read(&path);
        let layer = RulesLayer::new(rules.expect("rules")).observer(observer);
        let handle = layer.handle();
        Self {
            _directory: directory,
            path,
            ruled: Ruled::new(layer, clock),
            handle,
        }
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(&self.path, text).expect("a file");
    }

    /// The report of a reload of this text.
    pub(crate) fn reload(&self, text: &str) -> String {
        self.write(text);
        self.handle.reload().expect("rules").to_string()
    }

    /// The lines of the report that name rules.
    pub(crate) fn changes(&self, text: &str) -> String {
        let report = self.reload(text);
        let lines = report.lines().filter(|line| !line.starts_with(' '));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// How many of `count` requests pass.
    pub(crate) async fn passed(&self, count: usize) -> usize {
        self.ruled.passed(count, "/").await
    }

    /// How many requests pass until one is denied; at most 50.
    pub(crate) async fn drain(&self, path: &str) -> usize {
        let mut passed = 0;
        while passed < 50 && self.ruled.get(path).await == 200 {
            passed += 1;
        }
        passed
    }
}
