//! Reasons for which a decision was made without the store.

use std::fmt;

/// The reason for which something else than the limiter's store decided: see
/// [`Decision::degraded_by`](crate::Decision::degraded_by).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// So much was under way that no answer could be expected within the deadline. Nothing was sent.
    Crowded,
    /// No answer came within the deadline. The store may have counted the request as well.
    TimedOut,
    /// The store has been failing, and was not asked.
    GivenUp,
    /// The store could not be reached, or answered with an error.
    Failed,
}

impl Degradation {
    /// All reasons, in the order of their discriminants.
    #[cfg(feature = "redis")]
    pub(crate) const ALL: [Self; 4] = [Self::Crowded, Self::TimedOut, Self::GivenUp, Self::Failed];

    /// A short name in snake case, for metrics.
    #[must_use]
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
