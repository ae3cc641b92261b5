use std::{sync::Arc, time::Duration};

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

/// What a layer did with a request.
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
    /// The limiter could not decide.
    Failed {
        /// The layer's policies.
        policies: &'a [Policy],
        /// Why it could not.
        error: &'a LimiterError,
    },
}

/// A decision, and what led to it.
#[derive(Debug)]
pub struct Decided<'a> {
    pub(crate) decision: &'a Decision,
    pub(crate) key: &'a Key,
    pub(crate) cost: u64,
    pub(crate) latency: Duration,
    pub(crate) shadow: bool,
}

impl Decided<'_> {
    /// The decision, with the policy's name, limit and remaining units per quota.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        self.decision
    }

    /// Whom the request was counted for. Its `Debug` does not show the content,
    /// [`Key::reveal`] does.
    #[must_use]
    pub const fn key(&self) -> &Key {
        self.key
    }

    /// The units that were asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// How long the limiter took.
    #[must_use]
    pub const fn latency(&self) -> Duration {
        self.latency
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
