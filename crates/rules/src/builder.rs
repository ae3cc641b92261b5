//! The builder of rules: reads texts, files and directories.

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::request::Parts;
use tower_ratelimit_rulefile::{
    Format, Problem, ProblemCode, RulesError, SourceText, document::MAX_FILE_BYTES,
};

use super::{
    compile::{SourceFile, compile, context::Setup},
    request_matcher::Authenticator,
    rule::Rule,
    rule_set::{Rules, RulesOrigin},
    store::RulesStore,
};
use tower_ratelimit_core::{
    clock::{Clock, OsClock, SharedClock},
    key::extract::KeyExtractor,
};

/// Reads [`Rules`], with the keys and settings that the application registers in code.
#[derive(Clone)]
#[must_use]
pub struct RulesBuilder {
    setup: Setup,
    clock: SharedClock,
    store: Option<RulesStore>,
    state: Option<PathBuf>,
    format: Option<Format>,
}

impl Rules {
    /// A builder that registers keys and settings in code.
    pub fn builder() -> RulesBuilder {
        RulesBuilder {
            setup: Setup::default(),
            clock: SharedClock::new(OsClock::new()),
            store: None,
            state: None,
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
    /// Registers the key `{custom: name}`. The last key of one name counts.
    pub fn key(mut self, name: impl Into<String>, extractor: impl KeyExtractor) -> Self {
        let name = name.into();
        self.setup.keys.retain(|(known, _)| *known != name);
        self.setup.keys.push((name, Arc::new(extractor)));
        self
    }

    /// Sets the function that decides whether a request is `authenticated`, such as by the extension of an outer layer.
    /// Without it a file with `authenticated` is refused.
    pub fn authenticated<F>(mut self, authenticated: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.setup.authenticated = Some(Authenticator(Arc::new(authenticated)));
        self
    }

    /// Sets the store of counts: a [`LocalStore`](tower_ratelimit_core::LocalStore), which other limits may share, or a `RedisStore`.
    /// Defaults to a store of their own in this process.
    ///
    /// In Redis a leaky bucket or `block_for` is only accepted if all other limits are in the shadow: it could not be
    /// refunded when another rule denies.
    pub fn store(mut self, store: impl Into<RulesStore>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Restores the counts of this file when the first files are read, if the rules have a store of their own; see
    /// [`LocalStoreBuilder::restore_or_new`](tower_ratelimit_core::limiter::LocalStoreBuilder::restore_or_new). To save them, call
    /// [`LocalStore::save_to`](tower_ratelimit_core::LocalStore::save_to) of [`Rules::local_store`]. Counts belong to a rule's name.
    pub fn restore_or_new(mut self, path: impl Into<PathBuf>) -> Self {
        self.state = Some(path.into());
        self
    }

    /// Sets the clock of `time` and `schedule`, and of the counts if the rules have a store of their own. Defaults to the
    /// operating system's. A `LocalStore` of the application brings its own clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Sets the format of files that are passed by name, whatever their extension. By default, and in directories, the
    /// extension decides.
    pub const fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Whether files may have no rule. Defaults to false: an empty file is more often an accident than intended.
    pub const fn allow_empty(mut self, accept: bool) -> Self {
        self.setup.empty = accept;
        self
    }

    /// Whether files may use custom keys and `authenticated` that are not registered, for checks outside of the
    /// application. Such keys are unavailable, and no request is authenticated. Defaults to false.
    pub const fn outside_of_application(mut self, accept: bool) -> Self {
        self.setup.outside = accept;
        self
    }

    /// Whether files may have `in_flight`. Defaults to false: such a file is refused, since only responses that hold
    /// permits enforce it, see [`RulesLayer::holding`](super::RulesLayer::holding).
    pub const fn accept_in_flight(mut self, accept: bool) -> Self {
        self.setup.holds_permits = accept;
        self
    }

    /// Whether files may have `spend`. Defaults to false: such a file is refused, since only a layer that follows the
    /// bodies of responses enforces it, see [`RulesLayer::holding`](super::RulesLayer::holding).
    pub const fn accept_spend(mut self, accept: bool) -> Self {
        self.setup.follows_bodies = accept;
        self
    }

    /// Whether limits that responses decide are left out: `in_flight`, and the quotas with `counts` of rules with `spend`.
    /// [`Rules::left_out`] lists them. For programs that know requests only, such as a replay of a log. Defaults to false.
    pub const fn requests_only(mut self, requests_only: bool) -> Self {
        self.setup.requests_only = requests_only;
        self
    }

    /// Reads a text. Messages name it `rules`.
    ///
    /// # Errors
    ///
    /// All faults of the text, up to twenty, each with its line and column.
    pub fn parse(&self, text: impl Into<String>, format: Format) -> Result<Rules, RulesError> {
        self.parse_all([("rules", text.into(), format)])
    }

    /// Reads several texts as one list of rules, each with its name in messages.
    ///
    /// # Errors
    ///
    /// All faults of the texts, up to twenty.
    pub fn parse_all<N: Into<String>>(
        &self,
        texts: impl IntoIterator<Item = (N, String, Format)>,
    ) -> Result<Rules, RulesError> {
        let files = texts.into_iter().map(|(name, text, format)| {
            let source = SourceText::new(name.into(), text);
            (Arc::new(source), format)
        });
        let files: Vec<SourceFile> = files.collect();
        self.make(&files, &[])
    }

    /// Compiles these files. A reload reads `paths` again.
    fn make(&self, files: &[SourceFile], paths: &[PathBuf]) -> Result<Rules, RulesError> {
        let mut compiled = compile(files, &self.setup)?;
        if self.setup.requests_only {
            compiled.keep_requests_only();
        }
        let store = match &self.store {
            Some(store) => store.clone(),
            None => RulesStore::own(&compiled.store, &self.clock, self.state.as_deref())?,
        };
        // Outside of its application nobody knows where a file counts.
        if store.local().is_some() && !self.setup.outside {
            compiled.warnings.extend(idle_leases(&compiled.rules));
        }
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
                read: Box::new(move || {
                    // A container creates a directory for a missing mount: it would remove all rules of the file
                    // without a fault.
                    if let Some(path) = files_once.iter().find(|path| path.is_dir()) {
                        return Err(RulesError::unreadable(format!(
                            "{}: a directory, where a file was when the rules were first read",
                            path.display()
                        )));
                    }
                    builder.read_all(&paths)
                }),
            }
        });
        Rules::new(compiled, &store, self.clock.clone(), origin)
    }

    /// Reads a file, or all files `*.yaml`, `*.yml`, `*.json` and `*.toml` of a directory, sorted by name, as one list of
    /// rules. Ignores names that begin with a dot, such as the `..data` of a Kubernetes `ConfigMap`, and directories
    /// inside of the directory.
    ///
    /// # Errors
    ///
    /// [Unreadable](RulesError::is_unreadable) if the file does not exist, is not UTF-8, or has another extension;
    /// otherwise all faults of the files, up to twenty.
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

fn idle_leases(rules: &[Rule]) -> impl Iterator<Item = Problem> {
    let has_lease = |rule: &&Rule| {
        let limit = rule.in_flight.as_ref();
        limit.is_some_and(|limit| limit.lease.is_some())
    };
    rules.iter().filter(has_lease).map(|rule| {
        let message =
            "`lease` has no effect: these rules count in this process, and leases are of Redis";
        Problem::new(ProblemCode::W29, &rule.span, message)
    })
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

fn sources(paths: &[PathBuf], format: Option<Format>) -> Result<Vec<SourceFile>, RulesError> {
    let mut files = Vec::new();
    for path in paths {
        for file in files_of(path)? {
            let named = format.filter(|_| file == *path);
            let format = named.or_else(|| Format::of_path(&file)).ok_or_else(|| {
                let path = file.display();
                RulesError::unreadable(format!(
                    "{path}: the extension decides the format; accepted are yaml, yml, json, toml"
                ))
            })?;
            let (name, text) = (file.display().to_string(), text_of(&file)?);
            let source = Arc::new(SourceText::new(name, text));
            files.push((source, format));
        }
    }
    Ok(files)
}

fn sha256(files: &[SourceFile]) -> Vec<(String, String)> {
    let digests = files.iter();
    digests
        .map(|(source, _)| (source.name.clone(), source.sha256()))
        .collect()
}

/// The names and digests of the files, or the reason why they cannot be read.
#[cfg(feature = "rules-watch")]
pub(super) fn digests(
    paths: &[PathBuf],
    format: Option<Format>,
) -> Result<Vec<(String, String)>, String> {
    let files = sources(paths, format).map_err(|error| error.to_string())?;
    Ok(sha256(&files))
}

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
        // Opening a pipe would block this reload, and all later ones, until another process writes to it.
        if fs::metadata(&file).is_ok_and(|file| !file.is_file()) {
            let path = file.display();
            return Err(RulesError::unreadable(format!("{path}: it is no file")));
        }
        files.push(file);
    }
    files.sort();
    Ok(files)
}

/// Reads at most one byte more than the longest file.
fn text_of(path: &Path) -> Result<String, RulesError> {
    let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES as u64 + 1;
    let read = file.take(most).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    if bytes.len() > MAX_FILE_BYTES {
        // The reader reports a file that is too long, even if the last character is incomplete.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes)
        .map_err(|_| RulesError::unreadable(format!("{}: it is not UTF-8", path.display())))
}
