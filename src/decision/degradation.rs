//! Reasons why a decision was made without the store.

use std::fmt;

/// The reason why the limiter's fallback decided instead of its store: see
/// [`Decision::degraded_by`](crate::Decision::degraded_by).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// Too many calls were in flight for a response within the deadline. Nothing was sent.
    Crowded,
    /// The store did not respond within the deadline. It may have counted the request as well.
    TimedOut,
    /// The store had failed before, so its circuit is open: the limiter did not call it.
    GivenUp,
    /// The store could not be reached, or responded with an error.
    Failed,
}

impl Degradation {
    /// All reasons, in the order of their discriminants.
    #[cfg(feature = "shared")]
    pub(crate) const ALL: [Self; 4] = [Self::Crowded, Self::TimedOut, Self::GivenUp, Self::Failed];

    /// A short name for metrics: `crowded`, `timed_out`, `given_up` or `failed`. It stays the same from
    /// version to version.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crowded => "crowded",
            Self::TimedOut => "timed_out",
            Self::GivenUp => "given_up",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
