//! The outcome of a layer's decision about a request: pass, reject, or later.

use std::convert::Infallible;

use http::Response;

/// The outcome of a layer's decision about a request, for every service and for callers that find
/// the key themselves.
pub(crate) enum RequestOutcome<P, B, D> {
    /// The inner service is called; `P` is the work that its response leaves.
    Pass(P),
    /// The response; the inner service is not called.
    Reject(Response<B>),
    /// The decision takes time; `D` completes it.
    Defer(D),
}

/// The outcome of a request once its decision is complete. Each decision writes it in its place: a
/// response is long, and each conversion would move it.
pub(crate) type FinalOutcome<P, B> = RequestOutcome<P, B, Infallible>;
