//! A charge that a limiter is requested to make: key, tier and cost.

use std::time::{Duration, Instant};

use crate::{key::Key, limiter::Tier};

/// The charge for one request.
///
/// Key and tier are references until they must be kept: a key is long, and for most requests never
/// leaves the place where the extractor put it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChargeRequest<K = Key, T = Tier> {
    pub(super) key: K,
    pub(super) tier: T,
    pub(super) cost: u64,
    /// When the layer began to decide; `None` without an observer.
    pub(super) started: Option<Instant>,
}

pub(super) type ChargeRequestRef<'a> = ChargeRequest<&'a Key, &'a Tier>;

#[derive(Debug, Clone, Copy)]
pub(super) struct DecisionTrace {
    /// The time that the limiter took, if it is not the time since the start.
    pub(super) latency: Option<Duration>,
    pub(super) waited: Duration,
    /// Whether an elastic layer allowed the request.
    pub(super) exceeds: bool,
}

impl DecisionTrace {
    /// The history of a decision by the first answer.
    pub(super) const DIRECT: Self = Self {
        latency: None,
        waited: Duration::ZERO,
        exceeds: false,
    };
}

impl<'a> ChargeRequestRef<'a> {
    /// One unit of the limiter's own quotas.
    #[inline]
    pub(super) const fn usual(key: &'a Key) -> Self {
        static DEFAULT_TIER: Tier = Tier::DEFAULT;
        Self {
            key,
            tier: &DEFAULT_TIER,
            cost: 1,
            started: None,
        }
    }

    pub(super) const fn in_tier(self, tier: &'a Tier) -> Self {
        Self { tier, ..self }
    }

    pub(super) fn keep(self) -> ChargeRequest {
        ChargeRequest {
            key: self.key.clone(),
            tier: self.tier.clone(),
            cost: self.cost,
            started: self.started,
        }
    }
}

impl ChargeRequest {
    pub(super) const fn as_ref(&self) -> ChargeRequestRef<'_> {
        ChargeRequest {
            key: &self.key,
            tier: &self.tier,
            cost: self.cost,
            started: self.started,
        }
    }
}
