//! Errors: a decision that failed, and a service that did not start.

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
