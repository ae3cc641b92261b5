//! Errors: a decision that failed, and a service that did not start; and numbers in texts.

use std::{error::Error, fmt};

use tower_ratelimit::LimiterError;

/// A decision that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecideError {
    /// The request is invalid; the text has the reason.
    Invalid(String),
    /// There are no rules, or the store does not respond.
    Unavailable(String),
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid(text) | Self::Unavailable(text)) = self;
        f.write_str(text)
    }
}

impl Error for DecideError {}

impl From<LimiterError> for DecideError {
    fn from(error: LimiterError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

pub(crate) fn invalid(text: impl Into<String>) -> DecideError {
    DecideError::Invalid(text.into())
}

/// A service that did not start, or failed.
#[derive(Debug)]
pub struct ServeError(pub(crate) String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ServeError {}

/// An error at a place, such as an option, with its source.
pub(crate) fn fault(place: &str, error: &dyn Error) -> ServeError {
    let mut text = format!("{place}:\n{error}");
    if let Some(source) = error.source() {
        text += &format!(": {source}");
    }
    ServeError(text)
}

/// `1 limit`, `2 limits`.
pub(crate) fn counted(number: impl TryInto<u64>, noun: &str) -> String {
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
