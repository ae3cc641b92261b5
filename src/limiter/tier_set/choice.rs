//! The choice of the quotas that measure an operation: those of a tier, or a request's own.

use std::time::Duration;

use super::TierSet;
use crate::{
    algorithm::CompiledQuota,
    decision::{Op, REQUEST_TIER},
    error::LimiterError,
    limiter::{
        Facts, Tier,
        per_request_quota::{OwnQuota, several_quotas},
        tier_quotas::{TierIndex, TierQuotas},
    },
    quota::{Fitted, MAX_REFILL_NANOS, Priority, Quota},
};

/// The choice of the quotas that measure an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Chosen {
    Tier(TierIndex),
    /// A request's own quota.
    Request(Fitted),
    /// Quotas with the share that a class of requests may use. Variants of their own, so that requests
    /// without a priority need no check for one.
    TierInClass(TierIndex, Priority),
    RequestInClass(Fitted, Priority),
}

impl Chosen {
    /// The tier index in decisions.
    pub(crate) const fn index(self) -> TierIndex {
        match self {
            Self::Tier(tier) | Self::TierInClass(tier, _) => tier,
            Self::Request(_) | Self::RequestInClass(..) => REQUEST_TIER,
        }
    }

    /// The class of the requests.
    #[inline]
    pub(crate) const fn class(self) -> Priority {
        match self {
            Self::Tier(_) | Self::Request(_) => Priority::CRITICAL,
            Self::TierInClass(_, class) | Self::RequestInClass(_, class) => class,
        }
    }

    /// The quotas, whatever the class is.
    pub(crate) const fn of_all(self) -> Self {
        match self {
            Self::TierInClass(tier, _) => Self::Tier(tier),
            Self::RequestInClass(fitted, _) => Self::Request(fitted),
            of_all => of_all,
        }
    }

    /// The choice for requests of this class.
    pub(crate) const fn in_class(self, class: Priority) -> Self {
        match self.of_all() {
            of_all if class.is_critical() => of_all,
            Self::Tier(tier) | Self::TierInClass(tier, _) => Self::TierInClass(tier, class),
            Self::Request(fitted) | Self::RequestInClass(fitted, _) => {
                Self::RequestInClass(fitted, class)
            }
        }
    }

    /// The choice for `op`. If the operation has a receipt, its tier replaces `self`, unless a limiter of
    /// `tiers` tiers does not have it.
    pub(crate) fn by_receipt(self, op: &Op, tiers: usize, own: Option<&OwnQuota>) -> Self {
        let Some(receipt) = op.receipt() else {
            return self;
        };
        let by_receipt = match (receipt.request(), own) {
            (Some(fitted), Some(own)) => Self::Request(own.refit(fitted)),
            (None, _) if usize::from(receipt.tier()) < tiers => Self::Tier(receipt.tier()),
            _ => self,
        };
        by_receipt.in_class(self.class())
    }
}

impl TierSet {
    /// Chooses the quotas that measure `op` in `tier`.
    ///
    /// # Errors
    ///
    /// If there is no such tier, or a request brings a quota and the limiter has several.
    #[inline]
    pub(crate) fn choose(&self, tier: &Tier, op: &Op) -> Result<Chosen, LimiterError> {
        match op {
            // The usual case.
            Op::Acquire(_) if tier.is_default() => Ok(Chosen::Tier(0)),
            _ => self.choose_any(tier, op),
        }
    }

    fn choose_any(&self, tier: &Tier, op: &Op) -> Result<Chosen, LimiterError> {
        let own = self.own.as_ref();
        // Other operations are supported by all quotas, and skip the call.
        if matches!(op, Op::Count(_) | Op::Spend(_)) && !self.supports(op) {
            return Err(unsupported(op));
        }
        check_block(op)?;
        let chosen = match tier.request() {
            Some(quota) => Chosen::Request(own.ok_or_else(several_quotas)?.fit(quota)),
            None => Chosen::Tier(self.find(tier)?),
        };
        let chosen = chosen.in_class(tier.priority());
        Ok(chosen.by_receipt(op, self.tiers.len(), own))
    }

    /// Whether the quotas of all tiers support operations like `op`.
    pub(crate) fn supports(&self, op: &Op) -> bool {
        let mut quotas = self.tiers.iter().flat_map(|(_, tier)| &tier.quotas);
        match op {
            Op::Count(_) => quotas.all(Quota::is_uncapped),
            Op::Spend(_) => self.block_for.is_none() && quotas.all(Quota::can_spend),
            _ => true,
        }
    }

    /// What layers need to know of a limiter with these limits.
    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for op in [Op::Count(1), Op::Spend(1)] {
            if !self.supports(&op) {
                facts = facts.without(&op);
            }
        }
        facts.blocks = self.block_for.is_some();
        facts.classes = self.check_priority();
        facts
    }

    pub(crate) fn knows(&self, tier: &Tier) -> bool {
        self.tiers
            .iter()
            .any(|(known, _)| known.has_quotas_of(tier))
    }

    /// The index of `tier`.
    fn find(&self, tier: &Tier) -> Result<TierIndex, LimiterError> {
        if tier.has_default_quotas() {
            return Ok(0);
        }
        let mut tiers = self.tiers.iter();
        let found = tiers.position(|(known, _)| known.has_quotas_of(tier));
        found
            .map(|at| at as TierIndex)
            .ok_or_else(|| tier.unknown_among(self.tiers.iter().map(|(known, _)| known)))
    }

    /// The chosen quotas. A request's own quota is stored in `own`.
    ///
    /// # Errors
    ///
    /// If a request brings a quota and the limiter has several.
    pub(crate) fn measured_by<'a>(
        &'a self,
        chosen: Chosen,
        own: &'a mut Option<TierQuotas>,
    ) -> Result<&'a TierQuotas, LimiterError> {
        match chosen {
            Chosen::Tier(tier) | Chosen::TierInClass(tier, _) => Ok(self.quotas(tier)),
            Chosen::Request(fitted) | Chosen::RequestInClass(fitted, _) => {
                *own = self.of_request(fitted);
                own.as_ref().ok_or_else(several_quotas)
            }
        }
    }

    /// A request's own quota, as a tier.
    pub(crate) fn of_request(&self, fitted: Fitted) -> Option<TierQuotas> {
        let own = self.own.as_ref()?;
        let quota = own.with(fitted);
        Some(TierQuotas {
            policies: vec![own.policy.with_quota(&quota)],
            meters: vec![CompiledQuota::new(&quota, own.most)],
            counters: self.default_tier().counters.clone(),
            places: self.default_tier().places.clone(),
            quotas: vec![quota],
            named: Vec::new(),
        })
    }
}

/// Refuses a block by hand that is longer than one of a denial may be.
pub(crate) fn check_block(op: &Op) -> Result<(), LimiterError> {
    let too_long = |length: &Duration| length.as_nanos() > u128::from(MAX_REFILL_NANOS);
    match op {
        Op::Block(length) if too_long(length) => Err(LimiterError::unsupported(format!(
            "a block of {length:?} is longer than 18 years, the most that is accepted"
        ))),
        _ => Ok(()),
    }
}

/// The error of an operation that a limiter's quotas do not support.
#[cold]
pub(crate) fn unsupported(op: &Op) -> LimiterError {
    LimiterError::unsupported(match op {
        Op::Spend(_) => {
            "`spend` charges units that were used already: a leaky bucket has no slots for them, and a \
             limiter with `block_for` denies keys instead"
        }
        _ => {
            "`count` needs quotas that count beyond their limits: `Quota::fixed_window().uncapped()`"
        }
    })
}
