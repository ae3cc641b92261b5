//! The settings of a layer, apart from its limiter and its rejection.

use std::{fmt, sync::Arc};

use http::{request::Parts, response};

use super::wait::WaitingRoom;
#[cfg(feature = "rules")]
use crate::decision::ChargeEnd;
use crate::{
    key::KeyExtractor,
    limiter::{RequestQuota, Tier},
    middleware::{key_rules::PerRequest, settings::FrontSettings},
};

/// The settings of a layer, apart from its limiter and its rejection.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) front: FrontSettings,
    pub(super) cost: Option<PerRequest<u64>>,
    pub(super) expose_decision: bool,
    pub(super) tier: Option<PerRequest<Tier>>,
    pub(super) quota: Option<PerRequest<Option<RequestQuota>>>,
    /// Whether a denied request passes all the same.
    pub(super) elastic: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    pub(super) waiting_room: WaitingRoom,
    /// The cost of a request as it turns out, from its response and its charge.
    pub(super) final_cost: Option<FinalCost>,
}

/// The cost of a request as it turns out.
#[derive(Clone)]
pub(super) enum FinalCost {
    /// From its response and its charge, the same for all limits.
    Told(PerResponse<u64, u64>),
    /// The charge of each limit ends in its own way.
    #[cfg(feature = "rules")]
    OfEach(PerResponse<usize, ChargeEnd>),
}

/// Something that a closure says of each response, and of something else.
type PerResponse<A, T> = Arc<dyn Fn(&response::Parts, A) -> T + Send + Sync>;

impl Settings {
    pub(super) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            front: FrontSettings::new(extractor),
            cost: None,
            expose_decision: false,
            tier: None,
            quota: None,
            elastic: None,
            waiting_room: WaitingRoom::new(),
            final_cost: None,
        }
    }

    /// Whether every request costs one unit of the limiter's own quotas, and nothing but that is asked
    /// and told of it.
    pub(super) fn are_plain(&self) -> bool {
        let Self {
            front,
            cost,
            expose_decision,
            tier,
            quota,
            elastic,
            waiting_room,
            final_cost,
        } = self;
        let is_counted_alike = cost.is_none() && tier.is_none() && quota.is_none();
        let is_final = final_cost.is_none() && elastic.is_none() && !waiting_room.is_open();
        let is_told = *expose_decision || front.observer.is_some() || front.shadow;
        is_counted_alike && is_final && !is_told
    }

    /// The tier of a request.
    pub(super) fn tier_of(&self, parts: &Parts) -> Tier {
        if let Some(quota) = self.quota.as_ref().and_then(|quota| quota(parts)) {
            return quota.into();
        }
        self.tier.as_ref().map_or(Tier::DEFAULT, |tier| tier(parts))
    }

    /// Whether a denial may turn into something else.
    pub(super) fn bends(&self) -> bool {
        self.elastic.is_some() || self.waiting_room.is_open()
    }

    pub(super) fn cost_of(&self, parts: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("key_rules", &self.front.key_rules)
            .field("headers", &self.front.headers)
            .field("shadow", &self.front.shadow)
            .field("expose_decision", &self.expose_decision)
            .finish_non_exhaustive()
    }
}
