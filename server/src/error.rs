//! Errors: why there is no decision, and why a service did not start.

use std::{error::Error, fmt};

use tower_ratelimit::LimiterError;

/// Why there is no decision.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecideError {
    /// The request makes no sense; the text says why.
    Invalid(String),
    /// There are no rules, or the store that counts does not answer.
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

/// Why a service did not start, or ended.
#[derive(Debug)]
pub struct ServeError(pub(crate) String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ServeError {}

/// The error at a place, such as an option, with its cause.
pub(crate) fn fault(place: &str, error: &dyn Error) -> ServeError {
    let mut text = format!("{place}:\n{error}");
    if let Some(source) = error.source() {
        text += &format!(": {source}");
    }
    ServeError(text)
}
