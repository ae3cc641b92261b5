//! The settings of what operators use, and secrets in files.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::errors::{ServeError, counted};

/// The admin service, and what operators see.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OperatorSettings {
    /// The address of the admin service: a loopback address, unless there is a token. Defaults to none: no such
    /// service.
    pub admin: Option<SocketAddr>,
    /// The file with the token of the admin service, of at least 32 characters. Defaults to none.
    pub token_file: Option<PathBuf>,
    /// Further hosts that the admin service accepts. Defaults to none.
    pub hosts: Vec<String>,
    /// Whether the admin service and the log reveal keys, such as addresses. Defaults to false: they show digests.
    pub reveal_keys: bool,
    /// Whether the admin service has a page of limits as they act. The default is true.
    pub page: bool,
}

impl Default for OperatorSettings {
    fn default() -> Self {
        Self {
            admin: None,
            token_file: None,
            hosts: Vec::new(),
            reveal_keys: false,
            page: true,
        }
    }
}

/// The least number of characters of a secret.
const SHORTEST: usize = 32;

/// Reads the secret, such as the token of the admin service, from the file of an option; `what` is its name in errors.
///
/// # Errors
///
/// When the file cannot be read, or the secret is short.
pub fn read_secret(file: &Path, option: &str, what: &str) -> Result<String, ServeError> {
    let fault = |text| ServeError(format!("{option}: {}: {text}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
    let secret = text.trim();
    if secret.len() >= SHORTEST {
        return Ok(secret.to_owned());
    }
    let length = counted(secret.len(), "character");
    let text = format!("the {what} has {length}; at least {SHORTEST} are needed");
    Err(fault(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_has_at_least_32_characters() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let read = || read_secret(&file, "--token", "token");
        assert!(read().is_err(), "no file");
        let secret = "0123456789abcdef0123456789abcdef";
        fs::write(&file, format!("{secret}\n")).expect("a file");
        assert_eq!(read().expect("a secret"), secret);
        fs::write(&file, "0123456789\n").expect("a file");
        let error = read().expect_err("short").to_string();
        assert!(error.contains("the token has 10 characters"), "{error}");
    }
}
