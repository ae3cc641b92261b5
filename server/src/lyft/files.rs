//! The rule files of a directory.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

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
pub(crate) struct Listed {
    /// The path itself, or the files of the directory, in the order of their names.
    pub(crate) files: Vec<PathBuf>,
    /// The files and directories that are not read.
    pub(crate) others: Vec<PathBuf>,
}

impl FilesOf {
    /// # Errors
    ///
    /// When a directory cannot be read.
    pub(crate) fn list(self, path: &Path) -> io::Result<Listed> {
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
