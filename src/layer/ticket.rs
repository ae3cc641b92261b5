use std::time::Instant;

use crate::{key::Key, limiter::Tier};

/// What the limiter is asked about a request.
///
/// `K` is a reference until the key has to be kept: it is long, and for most requests never has to
/// leave the place where the extractor put it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket<K = Key> {
    pub(super) key: K,
    pub(super) tier: Tier,
    pub(super) cost: u64,
    /// Only kept for an observer.
    pub(super) asked_at: Option<Instant>,
}

impl Ticket<&Key> {
    pub(super) fn keep(self) -> Ticket {
        Ticket {
            key: self.key.clone(),
            tier: self.tier,
            cost: self.cost,
            asked_at: self.asked_at,
        }
    }
}

impl Ticket {
    pub(super) const fn as_ref(&self) -> Ticket<&Key> {
        Ticket {
            key: &self.key,
            tier: self.tier,
            cost: self.cost,
            asked_at: self.asked_at,
        }
    }
}
