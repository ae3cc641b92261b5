//! The files of directories with rules, and polling of them for changes.

use std::{
    ffi::OsStr,
    fs,
    future::pending,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

/// The interval of checks.
const PAUSE: Duration = Duration::from_secs(2);

/// Paths, and the digest of their files when they were last checked.
#[derive(Debug)]
pub struct Watch {
    paths: Vec<WatchedPath>,
    seen: u64,
}

/// A file or a directory; of a directory, the kind of files that count.
pub type WatchedPath = (PathBuf, FilesOf);

impl Watch {
    /// Watches these paths from now on.
    pub fn new(paths: Vec<WatchedPath>) -> Self {
        let seen = digest(&paths);
        Self { paths, seen }
    }

    /// Waits for a change of a name, a length, or a modification time. Links are followed, so a replaced target is a
    /// change.
    pub async fn changed(&mut self) {
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
pub async fn reload_on_change(watch: Option<Watch>, reload: impl Fn()) {
    let Some(mut watch) = watch else {
        return pending().await;
    };
    loop {
        watch.changed().await;
        reload();
    }
}

fn digest(paths: &[WatchedPath]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in paths.iter().flat_map(|(path, of)| rule_files(path, *of)) {
        let metadata = fs::metadata(&file).ok();
        let facts = metadata.map(|metadata| (metadata.len(), metadata.modified().ok()));
        (file, facts).hash(&mut hasher);
    }
    hasher.finish()
}

/// The file, or the files of the directory that may have rules.
fn rule_files(path: &Path, of: FilesOf) -> Vec<PathBuf> {
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

/// The files of a directory to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilesOf {
    /// `*.yaml`, `*.yml` and `*.json`, not in subdirectories.
    #[default]
    Rules,
    /// All files, also in subdirectories, as Envoy's reference service reads them; not in links to directories.
    All {
        /// Whether to read names that begin with a dot. Names with two dots are never read: in volumes of Kubernetes
        /// they are second copies of the files.
        dot_files: bool,
    },
}

/// The files at a path.
#[derive(Debug, Default)]
pub struct Listed {
    /// The path itself, or the files of the directory, in the order of their names.
    pub files: Vec<PathBuf>,
    /// The files and directories that are not read.
    pub others: Vec<PathBuf>,
}

impl FilesOf {
    /// # Errors
    ///
    /// When a directory cannot be read.
    pub fn list(self, path: &Path) -> io::Result<Listed> {
        let mut listed = Listed::default();
        if path.is_dir() {
            self.add(path, &mut listed)?
        } else {
            listed.files.push(path.to_owned())
        }
        listed.files.sort();
        listed.others.sort();
        Ok(listed)
    }

    fn add(self, directory: &Path, listed: &mut Listed) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            if begins(&path, "..") {
                continue;
            }
            if self.descends(&path) && entry.file_type()?.is_dir() {
                self.add(&path, listed)?;
            } else if self.takes(&path) && path.is_file() {
                listed.files.push(path);
            } else {
                listed.others.push(path);
            }
        }
        Ok(())
    }

    fn descends(self, path: &Path) -> bool {
        self != Self::Rules && self.takes(path)
    }

    fn takes(self, path: &Path) -> bool {
        match self {
            Self::Rules => {
                let extension = path.extension().and_then(OsStr::to_str);
                matches!(extension, Some("yaml" | "yml" | "json"))
            }
            Self::All { dot_files } => dot_files || !begins(path, "."),
        }
    }
}

fn begins(path: &Path, text: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(text.as_bytes())
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
        let mut watch = Watch::new(vec![
            (folder.path().to_owned(), FilesOf::Rules),
            (lone.clone(), FilesOf::Rules),
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
        let mut watch = Watch::new(vec![(folder.path().to_owned(), all)]);
        fs::write(below.join("mongo_cps"), "domain: a").expect("written");
        watch.changed().await;
        fs::write(below.join(".swap"), "").expect("written");
        let same = tokio::time::timeout(3 * PAUSE, watch.changed()).await;
        assert!(same.is_err(), "a dot file");
    }
}
