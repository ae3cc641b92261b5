//! Events, and the trait that takes them.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    decision::{Decision, Policy},
    error::{KeyError, LimiterError},
    key::Key,
};

/// Is told what a layer does with each request.
///
/// Implemented for closures over `&Event<'_>`, for tuples of two or three observers, which are told
/// one after another, and for an observer in an [`Arc`], which several layers can share.
pub trait Observer: Send + Sync + 'static {
    /// Something was decided. Runs within the request.
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
    /// The request passed without being counted: the layer skips it.
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
        /// Why there is no key.
        error: &'a KeyError,
    },
    /// The final cost is known of a request that was charged
    /// [provisionally](Decided::is_provisional), or that could not be found out or charged.
    ///
    /// It comes after the request's [`Decided`](Self::Decided), but for one case: a request that an
    /// [elastic](crate::RateLimitLayer::elastic) layer lets pass and cannot charge. There it comes
    /// first, from 0 to 0 and with the error.
    Corrected(Corrected<'a>),
    /// The limiter could not decide.
    Failed {
        /// The layer's policies.
        policies: &'a [Policy],
        /// Why it could not.
        error: &'a LimiterError,
    },
    /// The files of a `RulesLayer` were read again.
    #[cfg(feature = "rules")]
    RulesReloaded {
        /// How many rules are in force now.
        rules: usize,
        /// Why the rules stay as they were, if they do.
        error: Option<&'a (dyn std::error::Error + 'static)>,
    },
}

/// A decision, and what led to it.
#[derive(Debug)]
pub struct Decided<'a> {
    pub(crate) decision: &'a Decision,
    pub(crate) key: &'a Key,
    pub(crate) cost: u64,
    pub(crate) latency: Duration,
    pub(crate) waited: Duration,
    pub(crate) shadow: bool,
    pub(crate) provisional: bool,
}

/// The cost of a request in the end.
#[derive(Debug)]
pub struct Corrected<'a> {
    pub(crate) decision: &'a Decision,
    pub(crate) key: &'a Key,
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) error: Option<&'a LimiterError>,
}

impl<'a> Decided<'a> {
    /// A decision that was asked for at this instant, if anybody reads the clock for it, and came
    /// now.
    pub(crate) fn now(
        decision: &'a Decision,
        key: &'a Key,
        cost: u64,
        asked_at: Option<Instant>,
    ) -> Self {
        Self {
            decision,
            key,
            cost,
            latency: asked_at.map_or(Duration::ZERO, |at| at.elapsed()),
            waited: Duration::ZERO,
            shadow: false,
            provisional: false,
        }
    }
}

impl Decided<'_> {
    /// The decision, with the policy's name, limit and remaining units per quota.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        self.decision
    }

    /// The key that the request was counted for. Its `Debug` does not show the content,
    /// [`Key::reveal`] does.
    #[must_use]
    pub const fn key(&self) -> &Key {
        self.key
    }

    /// The key that the [binding](Decision::binding) quota counts: where limits with a key each are
    /// charged together, the one of that limit, else [`key`](Self::key).
    #[must_use]
    pub fn binding_key(&self) -> Cow<'_, Key> {
        let parts = self.key.joint_parts().into_iter().flatten().flatten();
        let part = { parts }.nth(self.decision.binding_limit());
        part.map_or(Cow::Borrowed(self.key), |part| {
            Cow::Owned(Key::from_bytes(part))
        })
    }

    /// The units that were asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// How long the limiter took, all operations of this request together; what the request
    /// [waited](Self::waited) is not part of it.
    #[must_use]
    pub const fn latency(&self) -> Duration {
        self.latency
    }

    /// How long the request waited: for a [denial to end](crate::RateLimitLayer::wait), or in the
    /// queue of a leaky bucket.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether the request's response may still change what it is charged, see
    /// [`final_cost`](crate::RateLimitLayer::final_cost). One [`Event::Corrected`] follows, whether
    /// or not anything changes.
    #[must_use]
    pub const fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// Whether the layer only watches: the request passed even if the decision is a denial.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether at least 80 % of the binding quota's limit is used up.
    #[must_use]
    pub fn is_near_limit(&self) -> bool {
        self.decision.binding().is_near_limit()
    }
}

impl Corrected<'_> {
    /// The decision that let the request pass; after a correction, how the quotas stand since then.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        self.decision
    }

    /// The key that the request was counted for. Its `Debug` does not show the content,
    /// [`Key::reveal`] does.
    #[must_use]
    pub const fn key(&self) -> &Key {
        self.key
    }

    /// The units that were charged when the request came.
    #[must_use]
    pub const fn before(&self) -> u64 {
        self.before
    }

    /// The units that are charged now; the same as [`before`](Self::before) when the response
    /// changed nothing, when there was none, and when the correction failed.
    #[must_use]
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// Why the units were not charged, or not given back.
    #[must_use]
    pub const fn error(&self) -> Option<&LimiterError> {
        self.error
    }
}
