//! Files that are looked at again and again, whether they have changed.

use std::{
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

/// How long nobody looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Files and directories of them, as they were seen last.
#[derive(Debug)]
pub(crate) struct Watch {
    paths: Vec<PathBuf>,
    seen: u64,
}

impl Watch {
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let seen = digest(&paths);
        Self { paths, seen }
    }

    /// Waits until they are others than they were: by name, length, or time of their last change. Files that somebody
    /// else's link now leads to are others, too.
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

fn digest(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        for file in files(path) {
            let metadata = fs::metadata(&file).ok();
            let facts = metadata.map(|metadata| (metadata.len(), metadata.modified().ok()));
            (file, facts).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The file, or those of the directory that may have rules.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let of_rules = |file: &PathBuf| {
        let extension = file.extension().and_then(OsStr::to_str);
        matches!(extension, Some("yaml" | "yml" | "json" | "toml"))
    };
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(of_rules).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time stands still but for the pauses.
    #[tokio::test(start_paused = true)]
    async fn changes_of_files_are_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        write("a.yaml", "domain: a");
        let lone = folder.path().join("lone");
        let mut watch = Watch::new(vec![folder.path().to_owned(), lone.clone()]);
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
}
