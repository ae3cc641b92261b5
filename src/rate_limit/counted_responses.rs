//! The responses that count, for callers that find the limits of a request themselves.

use std::sync::Arc;

use http::StatusCode;

/// The responses that count.
pub(crate) enum CountedResponses {
    /// For one limit, by the status.
    OfOne(Arc<dyn Fn(StatusCode) -> bool + Send + Sync>),
    /// For each of several limits.
    OfEach(Arc<KeptByLimit>),
}

/// The units that a limit keeps, by the status, the index of the limit and its charge; `None` if it does not
/// depend on responses.
pub(crate) type KeptByLimit = dyn Fn(StatusCode, (usize, u64)) -> Option<u64> + Send + Sync;
