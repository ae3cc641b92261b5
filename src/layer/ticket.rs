use std::time::Instant;

use crate::{key::Key, limiter::Tier};

/// A request that the limiter was asked about.
///
/// `K` is a reference until the key has to be kept: the key is long, and most requests are done
/// with where the extractor left it.
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
