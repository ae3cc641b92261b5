//! The arithmetic: pure functions of the old state, the time, the quota and the operation.
//!
//! Nothing here reads a clock, keeps state or allocates, so that every store decides alike. Times
//! are nanoseconds; the time now is a whole number of microseconds.

mod token_bucket;

pub(crate) use self::token_bucket::TokenBucket;

use crate::decision::Measure;

/// What an operation does to a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step<S> {
    /// The new state; `None` leaves the old one, as denials do.
    pub(crate) next: Option<S>,
    /// Units that were taken.
    pub(crate) charged: u64,
    /// How the quota stands afterwards.
    pub(crate) measure: Measure,
}
