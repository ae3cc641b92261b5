//! Backoff: how long a node denies without a call while units are scarce.

use std::{sync::Arc, time::Duration};

use crate::{
    decision::Decision,
    shared::{
        known::Known,
        wire::{node_message::NodeReply, plan::ReplyPlan},
    },
};

/// How long a node with a lease caches a denial whose cost fits after `wait`. A bucket gets its units
/// back one after another; a window when their time is over, or when other nodes return some.
pub(in crate::shared) fn hold(
    (plan, decision, wait): (&Arc<ReplyPlan>, &Decision, Duration),
    reply: &NodeReply,
    length: Duration,
) -> Duration {
    let pause = reply.hold.min(until_end(reply));
    match until_full((plan, decision), reply, 0) {
        Some(full) => wait.min(length).max(pause.min(full)),
        // The decision counts the node's own units as used too, and the node may return them.
        None if reply.others > 0 || reply.units > 0 => wait.min(pause),
        None => wait,
    }
}

/// The time until the row ends, and with it the window that it is in.
pub(in crate::shared) const fn until_end(reply: &NodeReply) -> Duration {
    // Zero stands for no row.
    if reply.ttl.is_zero() {
        Duration::MAX
    } else {
        reply.ttl
    }
}

/// The time until the binding bucket is full, from the decision on, after which units were granted.
/// From then on units get lost: held units count only once they are spent. `None` unless the binding
/// quota is a bucket.
pub(super) fn until_full(
    (plan, decision): (&Arc<ReplyPlan>, &Decision),
    reply: &NodeReply,
    granted: u32,
) -> Option<Duration> {
    let own = u64::from(reply.units.saturating_sub(granted));
    let place = decision.binding_place();
    Known::new(plan, decision).full_after(place, reply.others.saturating_add(own))
}
