//! The outcome of a layer's decision about a request: pass, reject, or later.

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

impl<P, B, D> From<Result<P, Response<B>>> for RequestOutcome<P, B, D> {
    #[inline]
    fn from(settled: Result<P, Response<B>>) -> Self {
        match settled {
            Ok(work) => Self::Pass(work),
            Err(response) => Self::Reject(response),
        }
    }
}
