//! The permit of a request in flight.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

/// Held by a request until its response, or the tunnel that it became, has ended.
pub(super) type RequestPermit = Arc<OwnedSemaphorePermit>;
