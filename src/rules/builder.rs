//! Reading rules: from texts, files and directories.

use std::{
    fmt, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::request::Parts;

use super::{
    compile::{Setup, SourceFile, compile},
    format::Format,
    matcher::Authenticator,
    problem::{RulesError, SourceText},
    set::{Rules, RulesOrigin},
    store::RulesStore,
    tree::MAX_FILE_BYTES,
};
use crate::{
    clock::{Clock, OsClock, SharedClock},
    key::KeyExtractor,
};

/// Reads [`Rules`], with what the application registers for them in code.
#[derive(Clone)]
#[must_use]
pub struct RulesBuilder {
    setup: Setup,
    clock: SharedClock,
    store: Option<RulesStore>,
    format: Option<Format>,
}

impl Rules {
    /// Reads rules, with what is registered in code.
    pub fn builder() -> RulesBuilder {
        RulesBuilder {
            setup: Setup::default(),
            clock: SharedClock::new(OsClock::new()),
            store: None,
            format: None,
        }
    }

    /// Reads a file, or all rule files of a directory, see [`RulesBuilder::read`].
    ///
    /// # Errors
    ///
    /// Those of [`RulesBuilder::read`].
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        Self::builder().read(path)
    }
}

impl RulesBuilder {
    /// Registers the key `{custom: name}`. Of two of one name the last counts.
    pub fn key(mut self, name: impl Into<String>, extractor: impl KeyExtractor) -> Self {
        let name = name.into();
        self.setup.keys.retain(|(known, _)| *known != name);
        self.setup.keys.push((name, Arc::new(extractor)));
        self
    }

    /// Says who is `authenticated`: what an outer layer left in the request's extensions, say.
    /// Without it a file that asks is refused.
    pub fn authenticated<F>(mut self, told: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.setup.authenticated = Some(Authenticator(Arc::new(told)));
        self
    }

    /// The place where the rules count: a [`LocalStore`](crate::LocalStore), which other limits may
    /// share, or a `RedisStore`. Defaults to a store of their own in this process.
    ///
    /// In Redis a leaky bucket or `block_for` is only accepted where no other rule limits anything,
    /// but in the shadow: it could not be taken back when another rule denies.
    pub fn store(mut self, store: impl Into<RulesStore>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Sets the clock that times of the day are told by, and that rules without a
    /// [`store`](Self::store) of the application are counted by. Defaults to the operating system's.
    /// With a `LocalStore` its clock is the one.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Reads files that are named one by one in this format, whatever their extension. Those of a
    /// directory, and all by default, are read in the format that their extension says.
    pub const fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Whether files without any rule are accepted. Defaults to no: an empty file is more often an
    /// accident than a wish.
    pub const fn allow_empty(mut self, accept: bool) -> Self {
        self.setup.empty = accept;
        self
    }

    /// Whether custom keys that are not registered are accepted, and `authenticated` without
    /// anybody to say so: for checks outside of the application. Such keys are unavailable, and
    /// nobody is authenticated. Defaults to no.
    pub const fn outside_of_application(mut self, accept: bool) -> Self {
        self.setup.outside = accept;
        self
    }

    /// Reads a text. Messages call it `rules`.
    ///
    /// # Errors
    ///
    /// All faults of the text, up to twenty, each with its line and column.
    pub fn parse(&self, text: impl Into<String>, format: Format) -> Result<Rules, RulesError> {
        self.parse_all([("rules", text.into(), format)])
    }

    /// Reads several texts as one list of rules, each under the name that messages call it.
    ///
    /// # Errors
    ///
    /// All faults of the texts, up to twenty.
    pub fn parse_all<N: Into<String>>(
        &self,
        texts: impl IntoIterator<Item = (N, String, Format)>,
    ) -> Result<Rules, RulesError> {
        let files = texts.into_iter().map(|(name, text, format)| SourceFile {
            source: Arc::new(SourceText::new(name.into(), text)),
            format,
        });
        let files: Vec<SourceFile> = files.collect();
        self.make(&files, &[])
    }

    /// Makes the rules of these files, which are read again from `paths`.
    fn make(&self, files: &[SourceFile], paths: &[PathBuf]) -> Result<Rules, RulesError> {
        let compiled = compile(files, &self.setup)?;
        let store = match &self.store {
            Some(store) => store.clone(),
            None => RulesStore::own(&compiled.store, &self.clock)?,
        };
        let origin = (!paths.is_empty()).then(|| {
            let builder = self.clone().store(store.clone());
            let paths = paths.to_vec();
            let files_once: Vec<PathBuf> = paths
                .iter()
                .filter(|path| path.is_file())
                .cloned()
                .collect();
            RulesOrigin {
                paths: paths.clone(),
                files: sha256(files),
                format: self.format,
                digest: digest(files),
                read: Box::new(move || {
                    still_files(&files_once)?;
                    builder.read_all(&paths)
                }),
            }
        });
        Rules::new(compiled, &store, self.clock.clone(), origin)
    }

    /// Reads a file, or all files `*.yaml`, `*.yml`, `*.json` and `*.toml` of a directory, sorted by
    /// name, as one list of rules. Names that begin with a dot are left out, so that the `..data` of
    /// a Kubernetes `ConfigMap` is not read twice; directories within are left out, too.
    ///
    /// # Errors
    ///
    /// [Unreadable](RulesError::is_unreadable) where there is no such file, it is not UTF-8 or its
    /// extension is none of these; else all faults of the files, up to twenty.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Rules, RulesError> {
        self.read_all([path])
    }

    /// Reads several files or directories as one list of rules.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn read_all<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Rules, RulesError> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().into()).collect();
        let files = sources(&paths, self.format)?;
        self.make(&files, &paths)
    }
}

impl fmt::Debug for RulesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self
            .setup
            .keys
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        f.debug_struct("RulesBuilder")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> RulesError {
    RulesError::unreadable(format!("{}: {error}", path.display()))
}

/// Refuses a directory in the place of a file, such as a container makes for a mount that is missing: all rules of
/// the file would go, and no fault be reported.
fn still_files(paths: &[PathBuf]) -> Result<(), RulesError> {
    match paths.iter().find(|path| path.is_dir()) {
        None => Ok(()),
        Some(path) => Err(RulesError::unreadable(format!(
            "{}: a directory, where a file was when the rules were first read",
            path.display()
        ))),
    }
}

/// The files that there are at these paths, with what is in them.
fn sources(paths: &[PathBuf], format: Option<Format>) -> Result<Vec<SourceFile>, RulesError> {
    let mut files = Vec::new();
    for path in paths {
        for file in files_of(path)? {
            let named = format.filter(|_| file == *path);
            let format = named.or_else(|| Format::of_path(&file)).ok_or_else(|| {
                let path = file.display();
                RulesError::unreadable(format!(
                    "{path}: the format is told by the extension; accepted are yaml, yml, json, toml"
                ))
            })?;
            let (name, text) = (file.display().to_string(), text_of(&file)?);
            let source = Arc::new(SourceText::new(name, text));
            files.push(SourceFile { source, format });
        }
    }
    Ok(files)
}

/// The names of the files, and the SHA-256 of each.
fn sha256(files: &[SourceFile]) -> Vec<(String, String)> {
    let sources = files.iter().map(|file| &file.source);
    sources
        .map(|source| (source.name.clone(), source.sha256()))
        .collect()
}

fn digest(files: &[SourceFile]) -> u64 {
    let mut digest = DefaultHasher::new();
    for SourceFile { source, .. } in files {
        (&source.name, &source.text).hash(&mut digest);
    }
    digest.finish()
}

/// A number that is another one when the files say something else, or cannot be read for another
/// reason.
#[cfg(feature = "rules-watch")]
pub(super) fn digest_of(paths: &[PathBuf], format: Option<Format>) -> u64 {
    let fault = |error: RulesError| {
        let mut digest = DefaultHasher::new();
        error.to_string().hash(&mut digest);
        digest.finish()
    };
    sources(paths, format).map_or_else(fault, |files| digest(&files))
}

/// The file itself, or the rule files of a directory.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, RulesError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
        let entry = entry.map_err(|error| unreadable(path, &error))?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let file = entry.path();
        if hidden || Format::of_path(&file).is_none() || file.is_dir() {
            continue;
        }
        // A pipe would wait for somebody who writes, and all later reloads with it.
        if fs::metadata(&file).is_ok_and(|file| !file.is_file()) {
            let path = file.display();
            return Err(RulesError::unreadable(format!("{path}: it is no file")));
        }
        files.push(file);
    }
    files.sort();
    Ok(files)
}

/// Reads no more than a file may have, whatever the path leads to.
fn text_of(path: &Path) -> Result<String, RulesError> {
    let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES as u64 + 1;
    let read = file.take(most).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    if bytes.len() > MAX_FILE_BYTES {
        // Too long a file is a fault of its own, wherever the last character is cut.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes)
        .map_err(|_| RulesError::unreadable(format!("{}: it is not UTF-8", path.display())))
}
