//! Errors of state files, and the report of a save.

use std::{borrow::Cow, error::Error, fmt, io};

use crate::{clock::Timestamp, error::ConfigError};

/// A state file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    pub(in super::super) entries: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) at: Timestamp,
}

impl Saved {
    /// The number of keys in the file; for a store, of counts and blocks.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// The size of the file in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time at which the save began.
    pub const fn at(&self) -> Timestamp {
        self.at
    }
}

/// Counts could not be saved.
#[derive(Debug)]
pub struct SaveError {
    kind: SaveErrorKind,
    message: Cow<'static, str>,
    source: Option<io::Error>,
}

/// Why counts could not be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaveErrorKind {
    /// The file could not be written.
    Write,
    /// The limiter counts in a store, which saves all its limiters together.
    InStore,
    /// A limiter of the store has no name, and the next process could not find its counts.
    Unnamed,
}

impl SaveError {
    pub(in super::super) fn new(
        kind: SaveErrorKind,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// The error of a step of writing, such as "sync FILE".
    pub(in super::super) fn write(step: &str, source: io::Error) -> Self {
        Self {
            kind: SaveErrorKind::Write,
            message: format!("{step}: {source}").into(),
            source: Some(source),
        }
    }

    /// Why the counts could not be saved.
    pub const fn kind(&self) -> SaveErrorKind {
        self.kind
    }
}

impl From<io::Error> for SaveError {
    fn from(source: io::Error) -> Self {
        Self::write("the state cannot be written", source)
    }
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SaveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Counts could not be restored. Nothing of the file is used.
#[derive(Debug)]
pub struct RestoreError {
    kind: RestoreErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Why counts could not be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestoreErrorKind {
    /// The file does not exist.
    NotFound,
    /// The file could not be read.
    Read,
    /// It is no state file, or it is cut off or damaged.
    Damaged,
    /// Another version of this crate wrote the file.
    Version,
    /// The file has the counts of another limiter: of other quotas, or of a store.
    Limits,
    /// The limiter itself could not be built.
    Config,
}

impl RestoreError {
    pub(in super::super) fn new(
        kind: RestoreErrorKind,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(in super::super) fn damaged(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(RestoreErrorKind::Damaged, message)
    }

    /// Why the counts could not be restored.
    pub const fn kind(&self) -> RestoreErrorKind {
        self.kind
    }
}

impl From<io::Error> for RestoreError {
    fn from(source: io::Error) -> Self {
        let kind = if source.kind() == io::ErrorKind::NotFound {
            RestoreErrorKind::NotFound
        } else {
            RestoreErrorKind::Read
        };
        Self {
            kind,
            message: format!("the state file cannot be read: {source}").into(),
            source: Some(source.into()),
        }
    }
}

impl From<ConfigError> for RestoreError {
    fn from(source: ConfigError) -> Self {
        Self {
            kind: RestoreErrorKind::Config,
            message: source.to_string().into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for RestoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
