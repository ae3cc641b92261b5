//! Texts and files as rules.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tower_ratelimit::rules::RulesError;

use super::{
    files::FilesOf,
    parse,
    rules::{Builder, Rules},
};

impl Rules {
    /// Starts to configure how rules are read.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Rules {
    /// The files and directories in the directories of rules that were not read.
    #[must_use]
    pub fn others(&self) -> &[PathBuf] {
        &self.others
    }
}

impl Builder {
    /// Whether a domain may stand in several files, which are then one. Defaults to false: a domain that comes
    /// again is a fault.
    pub const fn merge_domains(mut self, merge: bool) -> Self {
        self.merge_domains = merge;
        self
    }

    /// Whether what Envoy's reference service does not know is a fault: `unit_multiplier`, `algorithm`, `burst`,
    /// `slices` and `soft` of a limit. Defaults to false.
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Which files of directories are read. Defaults to [`FilesOf::Rules`].
    pub const fn files(mut self, files: FilesOf) -> Self {
        self.files = files;
        self
    }

    /// Reads texts, each with the name of its file. One fault refuses all of them.
    ///
    /// # Errors
    ///
    /// All that is wrong with the texts, and when there is no domain in them.
    pub fn parse<N: Into<String>, T: Into<String>>(
        &self,
        texts: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Rules, RulesError> {
        let texts = texts.into_iter();
        let texts = texts.map(|(name, text)| (name.into(), text.into()));
        parse::parse(texts, self)
    }

    /// Reads files, and [those](Self::files) of directories in the order of their names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, all that is wrong with the files, and when there is no file at all: a directory that
    /// is not filled yet does not mean that nothing is limited.
    pub fn read<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Rules, RulesError> {
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        for path in paths {
            let path = path.as_ref();
            let unreadable = |error: io::Error| {
                RulesError::unreadable(format!("{} cannot be read: {error}", path.display()))
            };
            let listed = self.files.list(path).map_err(unreadable)?;
            others.extend(listed.others);
            for file in listed.files {
                let text = fs::read_to_string(&file).map_err(unreadable)?;
                texts.push((file.display().to_string(), text));
            }
        }
        if texts.is_empty() {
            let paths = paths.iter().map(|path| path.as_ref().display().to_string());
            let paths: Vec<String> = paths.collect();
            let kind = match self.files {
                FilesOf::Rules => " (*.yaml, *.yml, *.json)",
                FilesOf::All { .. } => "",
            };
            let message = format!("there is no rule file{kind} in {}", paths.join(", "));
            return Err(RulesError::unreadable(message));
        }
        let rules = self.parse(texts)?;
        Ok(Rules { others, ..rules })
    }
}
