//! Demands: the key, the tier and the cost that a limiter is asked about.

use std::time::{Duration, Instant};

use crate::{key::Key, limiter::Tier};

/// The question to the limiter about a request.
///
/// Key and tier are references until they have to be kept: a key is long, and for most requests never
/// has to leave the place where the extractor put it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand<K = Key, T = Tier> {
    pub(super) key: K,
    pub(super) tier: T,
    pub(super) cost: u64,
    /// Only kept for an observer.
    pub(super) asked_at: Option<Instant>,
}

/// A demand whose key and tier are only lent.
pub(super) type DemandRef<'a> = Demand<&'a Key, &'a Tier>;

/// The way of a request to its decision.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Course {
    /// How long the limiter took, if that is not the time since it was asked.
    pub(super) latency: Option<Duration>,
    /// How long the request waited.
    pub(super) waited: Duration,
    /// Whether an elastic layer let it pass.
    pub(super) exceeds: bool,
}

/// The way of a request which the first answer settles.
pub(super) const DIRECT: Course = Course {
    latency: None,
    waited: Duration::ZERO,
    exceeds: false,
};

impl<'a> DemandRef<'a> {
    /// One unit of the limiter's own quotas.
    #[inline]
    pub(super) const fn usual(key: &'a Key) -> Self {
        static OF_ALL: Tier = Tier::DEFAULT;
        Self {
            key,
            tier: &OF_ALL,
            cost: 1,
            asked_at: None,
        }
    }

    pub(super) fn keep(self) -> Demand {
        Demand {
            key: self.key.clone(),
            tier: self.tier.clone(),
            cost: self.cost,
            asked_at: self.asked_at,
        }
    }
}

impl Demand {
    pub(super) const fn as_ref(&self) -> DemandRef<'_> {
        Demand {
            key: &self.key,
            tier: &self.tier,
            cost: self.cost,
            asked_at: self.asked_at,
        }
    }
}
