//! Files on disk: a new one replaces the old one in one step.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use super::error::{RestoreError, RestoreErrorKind, SaveError, Saved};
use crate::log::{self, Code};

/// Opens a state file.
pub(in super::super) fn open(path: &Path) -> Result<File, RestoreError> {
    Ok(File::open(path)?)
}

/// Logs why counts start afresh. A file that does not exist is no fault: the first process has none.
pub(in super::super) fn log_refused(path: &Path, error: &RestoreError) {
    if error.kind() != RestoreErrorKind::NotFound {
        let fault = format!(
            "{}: {error}; all keys start afresh, and the next save replaces the file",
            path.display()
        );
        log::report(Code::StateRefused, &fault);
    }
}

/// Writes a file beside `path`, readable for its owner only, syncs it, and renames it to `path`. A
/// process that is killed meanwhile leaves the old file as it was.
pub(in super::super) fn replace_file(
    path: &Path,
    write: impl FnOnce(&File) -> Result<Saved, SaveError>,
) -> Result<Saved, SaveError> {
    let temporary = temporary(path);
    let saved = create(&temporary)
        .map_err(|error| SaveError::write(&format!("create {}", temporary.display()), error))
        .and_then(|file| {
            let saved = write(&file)?;
            let synced = file.sync_all();
            synced.map_err(|error| {
                SaveError::write(&format!("sync {}", temporary.display()), error)
            })?;
            Ok(saved)
        })
        .and_then(|saved| {
            let renamed = fs::rename(&temporary, path);
            renamed.map_err(|error| {
                let step = format!("rename {} to {}", temporary.display(), path.display());
                SaveError::write(&step, error)
            })?;
            Ok(saved)
        });
    if saved.is_err() {
        drop(fs::remove_file(&temporary));
        return saved;
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    sync_folder(folder).map_err(|error| {
        SaveError::write(&format!("sync the folder {}", folder.display()), error)
    })?;
    saved
}

/// One name for all processes, so that those that were killed leave one file at most.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".tmp");
    name.into()
}

/// Creates a file that only its owner can read: with it one can test whether an address was counted.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    // A new one: another user's file or link must not receive the state.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a rename last. Only on Unix can a folder be synced.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
