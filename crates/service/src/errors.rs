//! The error of a service that did not start, and numbers in texts.

use std::{error::Error, fmt};

/// A service that did not start, or failed.
#[derive(Debug)]
pub struct ServeError(pub String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ServeError {}

/// An error at a place, such as an option, with its source.
pub fn fault(place: &str, error: &dyn Error) -> ServeError {
    let mut text = format!("{place}:\n{error}");
    if let Some(source) = error.source() {
        text += &format!(": {source}");
    }
    ServeError(text)
}

/// `1 limit`, `2 limits`.
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn only_one_is_singular() {
        let texts = [0, 1, 2, 10].map(|number: u64| counted(number, "limit"));
        assert_eq!(texts, ["0 limits", "1 limit", "2 limits", "10 limits"]);
    }
}
