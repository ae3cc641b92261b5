//! The charges for one request: what a limiter is called with.

use std::time::{Duration, Instant};

use tower_ratelimit_core::{
    key::Key,
    limiter::{
        call::{Charge, OpRef},
        tier::Tier,
    },
    quota::Priority,
    small_list::SmallList,
};

/// The charges for one request: one for each limit that counts it, in the order of the limits.
///
/// Keys and tiers are references until they must be kept: a key is long, and for most requests never leaves the place
/// where the extractor put it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChargeRequest<'a> {
    /// At least one. The operations are [`OpRef::Reserve`], or [`OpRef::Acquire`] where no other operation follows or a
    /// denial may start a block at once.
    pub(super) charges: &'a [Charge<'a>],
    /// When the layer began to decide; `None` without an observer.
    pub(super) started: Option<Instant>,
}

/// A [`ChargeRequest`] that owns its parts.
#[derive(Debug, Clone)]
pub(super) struct KeptCharges {
    charges: Kept,
    started: Option<Instant>,
}

#[derive(Debug, Clone)]
enum Kept {
    One(KeptCharge),
    Several(Box<[KeptCharge]>),
}

/// A charge without a receipt. Streams keep it until they end, so it is small.
#[derive(Debug, Clone)]
pub(super) struct KeptCharge {
    key: Key,
    tier: Tier,
    cost: u64,
    /// [`u32::MAX`] for the only limit.
    limit: u32,
    class: Priority,
    /// Whether it is an [`OpRef::Acquire`].
    at_once: bool,
    overflows: bool,
}

impl KeptCharge {
    fn of(charge: &Charge<'_>) -> Self {
        Self {
            key: charge.key.clone(),
            tier: charge.tier.clone(),
            cost: charge.op.units(),
            limit: charge.limit.map_or(u32::MAX, |limit| limit as u32),
            class: charge.class,
            at_once: !matches!(charge.op, OpRef::Reserve(_)),
            overflows: charge.overflows,
        }
    }

    pub(super) fn as_ref(&self) -> Charge<'_> {
        let op = if self.at_once {
            OpRef::Acquire(self.cost)
        } else {
            OpRef::Reserve(self.cost)
        };
        let mut charge = Charge::new(&self.key, op);
        charge.limit = (self.limit < u32::MAX).then_some(self.limit as usize);
        charge.tier = &self.tier;
        charge.class = self.class;
        charge.overflows = self.overflows;
        charge
    }
}

/// Charges of the limits that count most requests, without an allocation.
pub type FewCharges<'a> = SmallList<Charge<'a>, 4>;

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

impl<'a> ChargeRequest<'a> {
    /// Charges whose decision nobody observes.
    #[inline]
    pub(super) const fn of(charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            started: None,
        }
    }

    /// The cost of the request: of several limits the highest.
    pub(super) fn cost(self) -> u64 {
        let costs = self.charges.iter().map(|charge| charge.op.units());
        costs.max().unwrap_or(0)
    }

    /// The indexes of the limits.
    pub(super) fn limits(self) -> impl Iterator<Item = usize> + Clone + use<'a> {
        self.charges.iter().map(Charge::index)
    }

    /// Other operations in place of these.
    pub(super) fn with(self, op: impl Fn(OpRef<'a>) -> OpRef<'a>) -> FewCharges<'a> {
        FewCharges::collected(self.charges.iter().map(|own| own.op(op(own.op))))
    }

    pub(super) fn keep(self) -> KeptCharges {
        KeptCharges {
            charges: match self.charges {
                [only] => Kept::One(KeptCharge::of(only)),
                several => Kept::Several(several.iter().map(KeptCharge::of).collect()),
            },
            started: self.started,
        }
    }
}

impl KeptCharges {
    /// The request with these [references](Self::as_refs).
    pub(super) fn request<'a>(&self, charges: &'a FewCharges<'_>) -> ChargeRequest<'a> {
        ChargeRequest {
            charges: charges.as_slice(),
            started: self.started,
        }
    }

    pub(super) const fn as_slice(&self) -> &[KeptCharge] {
        match &self.charges {
            Kept::One(only) => std::slice::from_ref(only),
            Kept::Several(several) => several,
        }
    }

    /// The indexes of the limits.
    pub(super) fn limits(&self) -> impl Iterator<Item = usize> + Clone {
        self.as_slice().iter().map(|charge| charge.as_ref().index())
    }

    /// The charges, to be called again.
    pub(super) fn as_refs(&self) -> FewCharges<'_> {
        FewCharges::collected(self.as_slice().iter().map(KeptCharge::as_ref))
    }
}
