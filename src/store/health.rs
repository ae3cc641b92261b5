//! Health of a store.

use std::time::{Duration, Instant};

use super::{breaker::BreakerState, error::StoreErrorKind};
use crate::decision::Degradation;

/// How long a store stays strained after the last decision without it.
pub(crate) const STRAIN: Duration = Duration::from_secs(1);

/// Whether Redis works, as shown by the calls so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreHealth {
    /// No call to Redis has finished yet.
    Untried,
    /// Redis responds.
    Up,
    /// Redis responds, but within the last second a decision was made without it: its response was
    /// late, or was expected to be late. Also while some servers of a cluster fail and others
    /// respond.
    #[non_exhaustive]
    Strained {
        /// Reason of the last such decision.
        by: Degradation,
    },
    /// Redis has been failing and receives only trials. In a cluster: all servers that have
    /// received calls.
    #[non_exhaustive]
    Down {
        /// Time at which the breaker opened.
        since: Instant,
        /// Kind of the last failure.
        cause: StoreErrorKind,
    },
}

impl StoreHealth {
    /// Whether Redis has been failing.
    pub const fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

impl From<BreakerState> for StoreHealth {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Untried => Self::Untried,
            BreakerState::Works => Self::Up,
            BreakerState::Fails { since, cause } => Self::Down {
                since,
                cause: cause.kind(),
            },
        }
    }
}
