//! Secrets in files: the token of the admin service, the key of reservations.

use std::{fs, path::Path};

use crate::plural::counted;

/// The least number of characters of a secret.
const SHORTEST: usize = 32;

/// Reads the secret from a file; `what` is its name in errors.
///
/// # Errors
///
/// When the file cannot be read, or the secret is short.
pub(crate) fn read(file: &Path, what: &str) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let secret = text.trim();
    match secret.len() {
        SHORTEST.. => Ok(secret.to_owned()),
        len => Err(format!(
            "{}: the {what} has {}; at least {SHORTEST} are needed",
            file.display(),
            counted(len, "character")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_has_at_least_32_characters() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        assert!(read(&file, "token").is_err(), "no file");
        let secret = "0123456789abcdef0123456789abcdef";
        fs::write(&file, format!("{secret}\n")).expect("a file");
        assert_eq!(read(&file, "token").as_deref(), Ok(secret));
        fs::write(&file, "0123456789\n").expect("a file");
        let error = read(&file, "token").expect_err("short");
        assert!(error.contains("the token has 10 characters"), "{error}");
    }
}
