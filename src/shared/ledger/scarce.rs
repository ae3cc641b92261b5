//! Scarcity: how long it makes sense to deny without asking.

use std::time::Duration;

use crate::{decision::Decision, shared::lease::LeaseReply};

/// The time until the row ends, and with it the window that it is in.
pub(super) const fn until_end(reply: &LeaseReply) -> Duration {
    match reply.ttl {
        // There is no row.
        Duration::ZERO => Duration::MAX,
        ttl => ttl,
    }
}

/// The time until the bucket that binds is full, from the decision on, after which units were
/// granted. From then on units get lost: those that are held count only when they were spent.
pub(super) fn until_full(decision: &Decision, reply: &LeaseReply, granted: u32) -> Duration {
    let own = u64::from(reply.units.saturating_sub(granted));
    let (_, status) = decision.binding_place();
    let full = status.full_after(reply.others.saturating_add(own));
    full.unwrap_or(Duration::MAX)
}
