//! Reads texts and files as rules.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tower_ratelimit_rulefile::{Report, RulesError};

use super::{
    files::FilesOf,
    rules::{Builder, Rules},
    rules_parser::{self, RulesDocument},
};

impl Rules {
    /// A builder with the settings for reading rules.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Rules {
    /// The files and directories in the rule directories that were not read.
    pub fn others(&self) -> &[PathBuf] {
        &self.others
    }
}

impl Builder {
    /// Whether several files may have parts of one domain. Defaults to false: a repeated domain is a fault.
    pub const fn merge_domains(mut self, merge: bool) -> Self {
        self.merge_domains = merge;
        self
    }

    /// Whether extensions of Envoy's reference service are faults: `unit_multiplier`, `algorithm`, `burst`, `slices`
    /// and `soft` of a limit. Defaults to false.
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// The files of directories to read. Defaults to [`FilesOf::Rules`].
    pub const fn files(mut self, files: FilesOf) -> Self {
        self.files = files;
        self
    }

    /// Parses texts, each with the name of its file. One fault rejects all of them.
    ///
    /// # Errors
    ///
    /// All faults of the texts, or that they have no domain.
    pub fn parse<N: Into<String>, T: Into<String>>(
        &self,
        texts: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Rules, RulesError> {
        let texts = texts
            .into_iter()
            .map(|(name, text)| (name.into(), text.into()));
        rules_parser::parse(texts, self)
    }

    /// Reads documents that are no files, after the faults in `report`. Without a document there is no limit.
    ///
    /// # Errors
    ///
    /// All faults of the documents and of `report`.
    pub(crate) fn read_documents(
        &self,
        documents: Vec<RulesDocument>,
        report: Report,
    ) -> Result<Rules, RulesError> {
        rules_parser::read_documents(documents, report, self)
    }

    /// Reads files, and [those](Self::files) of directories in the order of their names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, all faults of the files, and when there is no file at all: a directory that is
    /// still empty does not mean that nothing is limited.
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
            let paths: Vec<String> = paths
                .iter()
                .map(|path| path.as_ref().display().to_string())
                .collect();
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
