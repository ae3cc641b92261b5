//! Parts of every service around an inner one: the outcome of a request, the instance that was polled ready, accessors.

use std::{convert::Infallible, mem};

use http::Response;

/// The outcome of a layer's decision about a request, for every service and for callers that find
/// the key themselves.
pub(crate) enum RequestOutcome<P, B, D> {
    /// The inner service is called; `P` is the work that its response leaves.
    Pass(P),
    Reject(Response<B>),
    /// The decision takes time; `D` completes it.
    Defer(D),
}

/// The outcome of a request once its decision is complete. Each decision writes it in its place: a
/// response is long, and each conversion would move it.
pub(crate) type FinalOutcome<P, B> = RequestOutcome<P, B, Infallible>;

/// Takes the instance that was polled ready, for a request that waits. A clone replaces it, which is not
/// ready.
/// <https://docs.rs/tower/latest/tower/trait.Service.html#be-careful-when-cloning-inner-services>
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let unready = inner.clone();
    mem::replace(inner, unready)
}

/// Drops the instance that was polled ready, of a request that is rejected: it may hold what it got for a call, such as
/// a permit. A clone replaces it.
#[cold]
#[inline(never)]
pub(crate) fn drop_ready<S: Clone>(inner: &mut S) {
    drop(take_ready(inner));
}

/// The accessors of a service that keeps the one inside in its field `inner`.
macro_rules! inner_service {
    ($inner:ty) => {
        /// The inner service.
        pub const fn get_ref(&self) -> &$inner {
            &self.inner
        }

        /// The inner service.
        pub const fn get_mut(&mut self) -> &mut $inner {
            &mut self.inner
        }

        /// The inner service.
        pub fn into_inner(self) -> $inner {
            self.inner
        }
    };
}

pub(crate) use inner_service;
