//! A configuration that is read again when its files change.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::{error, info};

use crate::decide_and_serve_errors::ServeError;

/// Files from which a configuration is made.
pub(crate) trait ConfigFiles {
    /// The bytes of the files.
    type Contents: PartialEq;
    type Config;

    /// The files in log lines, such as `the certificates`.
    const NAME: &'static str;

    /// The begin of a log line about new files with a fault, such as `the certificates stay as they were`.
    const UNCHANGED: &'static str;

    fn read(&self) -> Result<Self::Contents, ServeError>;

    fn config(&self, contents: &Self::Contents) -> Result<Self::Config, ServeError>;
}

/// The configuration of the last valid files. Clones share it.
pub(crate) struct ReloadedFiles<F: ConfigFiles>(Arc<Inner<F>>);

struct Inner<F: ConfigFiles> {
    files: F,
    current: Mutex<Current<F>>,
}

struct Current<F: ConfigFiles> {
    /// The files as last read, also with a fault.
    contents: F::Contents,
    config: Arc<F::Config>,
    /// The fault, which is logged once.
    fault: Option<String>,
}

impl<F: ConfigFiles> Clone for ReloadedFiles<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ConfigFiles> ReloadedFiles<F> {
    /// # Errors
    ///
    /// When a file cannot be read, or has the wrong contents.
    pub(crate) fn new(files: F) -> Result<Self, ServeError> {
        let contents = files.read()?;
        let config = Arc::new(files.config(&contents)?);
        let current = Mutex::new(Current {
            contents,
            config,
            fault: None,
        });
        Ok(Self(Arc::new(Inner { files, current })))
    }

    pub(crate) fn config(&self) -> Arc<F::Config> {
        let current = self.0.current.lock();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner).config)
    }

    /// Reads the files again; open connections are unaffected.
    pub(crate) fn reload(&self) {
        let read = self.0.files.read();
        let mut current = self
            .0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let config = read.and_then(|contents| {
            let is_new = contents != current.contents;
            let config = is_new.then(|| self.0.files.config(&contents));
            current.contents = contents;
            config.transpose()
        });
        match config {
            Ok(Some(config)) => {
                current.config = Arc::new(config);
                current.fault = None;
                info!("read {} again", F::NAME);
            }
            Ok(None) => {}
            Err(error) => {
                let fault = error.to_string();
                if current.fault.as_ref() != Some(&fault) {
                    error!("{}: {fault}", F::UNCHANGED);
                    current.fault = Some(fault);
                }
            }
        }
    }
}
