//! Polling of rule files for changes.

use std::{
    fs,
    future::pending,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

use crate::{lyft::FilesOf, settings::Settings};

/// The interval of checks.
const PAUSE: Duration = Duration::from_secs(2);

/// Paths, and the digest of their files when they were last checked.
#[derive(Debug)]
pub(crate) struct Watch {
    paths: Paths,
    seen: u64,
}

/// Paths of descriptor rules and of request rules; of directories, the kind of files that count.
type Paths = [(Vec<PathBuf>, FilesOf); 2];

impl Watch {
    /// Watches the rules of descriptors and of requests, if the settings enable it.
    pub(crate) fn new(settings: &Settings) -> Option<Self> {
        let paths = || {
            [
                (settings.rules.clone(), settings.files),
                (settings.auth_rules.clone(), FilesOf::Rules),
            ]
        };
        settings.watch.then(|| Self::of(paths()))
    }

    fn of(paths: Paths) -> Self {
        let seen = digest(&paths);
        Self { paths, seen }
    }

    /// Waits for a change of a name, a length, or a modification time. Links are followed, so a replaced target is a
    /// change.
    pub(crate) async fn changed(&mut self) {
        loop {
            sleep(PAUSE).await;
            let paths = self.paths.clone();
            let Ok(now) = spawn_blocking(move || digest(&paths)).await else {
                continue;
            };
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }
}

/// Calls `reload` after each change; never completes. Without a watch it only waits.
pub(crate) async fn reload_on_change(watch: Option<Watch>, reload: impl Fn()) {
    let Some(mut watch) = watch else {
        return pending().await;
    };
    loop {
        watch.changed().await;
        reload();
    }
}

fn digest(paths: &Paths) -> u64 {
    let mut hasher = DefaultHasher::new();
    let paths = paths
        .iter()
        .flat_map(|(paths, files)| paths.iter().map(|path| (path, *files)));
    for file in paths.flat_map(|(path, of)| files(path, of)) {
        let metadata = fs::metadata(&file).ok();
        let facts = metadata.map(|metadata| (metadata.len(), metadata.modified().ok()));
        (file, facts).hash(&mut hasher);
    }
    hasher.finish()
}

/// The file, or the files of the directory that may have rules.
fn files(path: &Path, of: FilesOf) -> Vec<PathBuf> {
    let Ok(mut listed) = of.list(path) else {
        return vec![path.to_owned()];
    };
    // Rules of requests may be TOML.
    let is_toml = |file: &&PathBuf| {
        file.extension()
            .is_some_and(|extension| extension == "toml")
    };
    let toml = listed.others.iter().filter(is_toml);
    listed.files.extend(toml.cloned());
    listed.files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paused time advances by the polling interval only.
    #[tokio::test(start_paused = true)]
    async fn changes_of_files_are_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        write("a.yaml", "domain: a");
        let lone = folder.path().join("lone");
        let mut watch = Watch::of([
            (vec![folder.path().to_owned()], FilesOf::Rules),
            (vec![lone.clone()], FilesOf::Rules),
        ]);
        let same = tokio::time::timeout(3 * PAUSE, watch.changed()).await;
        assert!(same.is_err(), "nothing has changed");
        write("a.yaml", "domain: longer");
        watch.changed().await;
        write("b.yml", "");
        watch.changed().await;
        write("lone", "that was not there");
        watch.changed().await;
        write("notes.txt", "no rules");
        let same = tokio::time::timeout(3 * PAUSE, watch.changed()).await;
        assert!(same.is_err(), "no rules");
        #[cfg(unix)]
        {
            fs::remove_file(folder.path().join("b.yml")).expect("removed");
            watch.changed().await;
        }
    }
    #[tokio::test(start_paused = true)]
    async fn all_files_are_watched_where_all_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("team");
        fs::create_dir(&below).expect("a folder");
        let all = FilesOf::All { dot_files: false };
        let paths = (vec![folder.path().to_owned()], all);
        let mut watch = Watch::of([paths, (Vec::new(), FilesOf::Rules)]);
        fs::write(below.join("mongo_cps"), "domain: a").expect("written");
        watch.changed().await;
        fs::write(below.join(".swap"), "").expect("written");
        let same = tokio::time::timeout(3 * PAUSE, watch.changed()).await;
        assert!(same.is_err(), "a dot file");
    }
}
