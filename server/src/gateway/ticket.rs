//! Tickets: the room that a request takes.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

/// Held by a request until its answer, or the connection that it became, has ended.
pub(super) type Ticket = Arc<OwnedSemaphorePermit>;
