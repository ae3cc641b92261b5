//! Events of a layer, and the trait of their observers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tower_ratelimit_core::{
    decision::{Decision, Policy, QuotaStatus},
    error::{KeyError, LimiterError},
    key::Key,
    limiter::call::Charge,
};

/// An observer of a layer's decisions, one call for each [`Event`].
///
/// Implemented for closures over `&Event<'_>`, for tuples of two or three observers, which are called
/// one after another, and for an observer in an [`Arc`], which several layers can share.
pub trait Observer: Send + Sync + 'static {
    /// Observes an event. Runs within the request, so it must not block.
    fn observe(&self, event: &Event<'_>);
}

impl<F> Observer for F
where
    F: Fn(&Event<'_>) + Send + Sync + 'static,
{
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}

macro_rules! tuple_observer {
    ($($name:ident),+) => {
        impl<$($name: Observer),+> Observer for ($($name,)+) {
            #[allow(non_snake_case)]
            fn observe(&self, event: &Event<'_>) {
                let ($($name,)+) = self;
                $($name.observe(event);)+
            }
        }
    };
}

tuple_observer!(A, B);
tuple_observer!(A, B, C);

/// The outcome of a request at a layer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The limiter decided.
    Decided(Decided<'a>),
    /// The limiter denied the request, which passed to the inner service: the layer lets requests
    /// [overflow](crate::rate_limit::layer::RateLimitLayer::overflow), or a rule does. There is no [`Decided`](Self::Decided) for it. If
    /// other rules charged it, the decision is [allowed](Decision::is_allowed), and the binding quota is one that
    /// denied.
    Overflowed(Decided<'a>),
    /// The request passed uncounted: the layer skips it.
    Bypassed {
        /// The layer's policies.
        policies: &'a [Policy],
    },
    /// The request was rejected: its key, or something else about it, is on a deny list.
    Banned {
        /// The layer's policies.
        policies: &'a [Policy],
    },
    /// The request has no key, and the layer rejects such requests.
    KeyMissing {
        /// The layer's policies.
        policies: &'a [Policy],
        /// The reason why there is no key.
        error: &'a KeyError,
    },
    /// The final cost of a request that was charged [provisionally](Decided::is_provisional) is known,
    /// or could not be determined or charged.
    ///
    /// It comes after the request's [`Decided`](Self::Decided) or [`Overflowed`](Self::Overflowed), with one exception:
    /// if an [elastic](crate::rate_limit::layer::RateLimitLayer::elastic) layer lets a request pass and cannot charge it, this event comes
    /// first, from 0 to 0 and with the error.
    Corrected(Corrected<'a>),
    /// The limiter could not decide.
    Failed {
        /// The layer's policies.
        policies: &'a [Policy],
        /// The limiter's error.
        error: &'a LimiterError,
    },
    /// The files of a `RulesLayer` were read again.
    RulesReloaded {
        /// The number of rules in force now.
        rules: usize,
        /// The error, if the reload failed. The old rules then stay in force.
        error: Option<&'a (dyn std::error::Error + 'static)>,
    },
}

/// A decision, with the request's key and cost.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
pub struct Decided<'a> {
    #[doc(hidden)]
    pub decision: &'a Decision,
    #[doc(hidden)]
    pub charges: &'a [Charge<'a>],
    #[doc(hidden)]
    pub latency: Duration,
    #[doc(hidden)]
    pub waited: Duration,
    #[doc(hidden)]
    pub shadow: bool,
    #[doc(hidden)]
    pub provisional: bool,
}

/// The key of the limit whose quota binds in the decision; there is at least one charge.
fn binding_key<'a>(charges: &[Charge<'a>], decision: &Decision) -> &'a Key {
    let limit = decision.quotas.limit_of(decision.quotas.binding_place());
    charges.get(limit).unwrap_or(&charges[0]).key
}

/// The final cost of a request.
#[derive(Debug)]
pub struct Corrected<'a> {
    pub(crate) decision: &'a Decision,
    pub(crate) charges: &'a [Charge<'a>],
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// The units that each limit keeps; empty if all keep the same.
    pub(crate) kept_by_each: &'a [u64],
    /// The source of the units of a response whose body determines the charge.
    pub(crate) source: Option<SpendSource>,
    /// The units that each limit forgot at the end of such a body; `None` for one that responses do not charge.
    pub(crate) forgotten_by_each: &'a [Option<u64>],
    pub(crate) error: Option<&'a LimiterError>,
}

/// The source of the units that a response has used, in a [`SpendLayer`](crate::rate_limit::SpendLayer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpendSource {
    /// The response reported its usage.
    Reported,
    /// A handler reported it, by its [`Spent`](crate::rate_limit::Spent).
    Handler,
    /// It was estimated by the response's text.
    Estimated,
    /// Nothing was known.
    Missing,
}

impl SpendSource {
    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Handler => "handler",
            Self::Estimated => "estimated",
            Self::Missing => "missing",
        }
    }
}

impl<'a> Decided<'a> {
    /// A decision that was made now, for a request that was submitted at `submitted_at`; `None` if no
    /// observer needs the latency.
    #[doc(hidden)]
    pub fn now(
        decision: &'a Decision,
        charges: &'a [Charge<'a>],
        submitted_at: Option<Instant>,
    ) -> Self {
        Self {
            decision,
            charges,
            latency: submitted_at.map_or(Duration::ZERO, |at| at.elapsed()),
            waited: Duration::ZERO,
            shadow: false,
            provisional: false,
        }
    }
}

impl Decided<'_> {
    /// The decision, with the policy's name, limit and remaining units per quota.
    pub const fn decision(&self) -> &Decision {
        self.decision
    }

    /// The key that the [binding](Decision::binding) quota counts the request by: the key of the layer, or, if limits with
    /// a key each are charged together, that of the limit that binds. Its `Debug` does not show the content,
    /// [`Key::reveal`] does.
    pub fn key(&self) -> &Key {
        binding_key(self.charges, self.decision)
    }

    /// The keys of all limits that count the request, in their order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.charges.iter().map(|charge| charge.key)
    }

    /// The units requested.
    pub fn cost(&self) -> u64 {
        let costs = self.charges.iter().map(|charge| charge.op.units());
        costs.max().unwrap_or(0)
    }

    /// The time that the limiter spent on all operations of this request. The time that the request
    /// [waited](Self::waited) is not included.
    pub const fn latency(&self) -> Duration {
        self.latency
    }

    /// The time that the request waited for a [denial to end](crate::rate_limit::layer::RateLimitLayer::wait), or in the
    /// queue of a leaky bucket.
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether the response may still change the request's charge, see
    /// [`final_cost`](crate::rate_limit::layer::RateLimitLayer::final_cost). One [`Event::Corrected`] follows, even if
    /// the charge stays.
    pub const fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// Whether the layer is in shadow mode: the request passed even if the decision is a denial.
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether at least 80 % of the binding quota's limit is used.
    pub fn is_near_limit(&self) -> bool {
        self.decision.binding().is_near_limit()
    }
}

impl Corrected<'_> {
    /// The decision that allowed the request; after a correction, the limiter's answer to it.
    pub const fn decision(&self) -> &Decision {
        self.decision
    }

    /// The key that the [binding](Decision::binding) quota counts the request by: the key of the layer, or, if limits with
    /// a key each are charged together, that of the limit that binds. Its `Debug` does not show the content,
    /// [`Key::reveal`] does.
    pub fn key(&self) -> &Key {
        binding_key(self.charges, self.decision)
    }

    /// The keys of all limits that count the request, in their order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.charges.iter().map(|charge| charge.key)
    }

    /// The units that were charged when the request came.
    pub const fn before(&self) -> u64 {
        self.before
    }

    /// The units charged now; of several limits, the least of one. Equal to [`before`](Self::before) if the response
    /// changed nothing, if there was no response, or if the correction failed.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// The units that each quota keeps of the request, in the order of the [decision](Self::decision).
    pub fn kept(&self) -> impl Iterator<Item = (QuotaStatus<'_>, u64)> {
        let quotas = self.decision.quotas().enumerate();
        quotas.filter_map(|(at, quota)| {
            // A quota that denies took nothing, also from a request that passed by the others.
            let alike = if quota.is_denied() { 0 } else { self.after };
            let units = match self.kept_by_each {
                [] | [_] => alike,
                each => *each.get(self.decision.quotas.limit_of(at))?,
            };
            Some((quota, units))
        })
    }

    /// The source of the units, if the response's body determines the charge: in a
    /// [`SpendLayer`](crate::rate_limit::SpendLayer).
    pub const fn source(&self) -> Option<SpendSource> {
        self.source
    }

    /// The units that were used and not charged, because they are beyond the quota's [debt](tower_ratelimit_core::Quota::debt). Always
    /// 0 if the body does not determine the charge. Of several limits, the most of one.
    pub fn forgotten(&self) -> u64 {
        let each = self.forgotten_by_each.iter().copied();
        each.flatten().max().unwrap_or(0)
    }

    /// The error that prevented a charge or a refund.
    pub const fn error(&self) -> Option<&LimiterError> {
        self.error
    }
}
