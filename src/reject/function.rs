use std::fmt;

use http::Response;

use super::{Reject, Rejection};

/// A rejection that a closure makes, for any response body.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_ratelimit::reject::{Reject, RejectFn, Rejection, RejectionKind};
///
/// let forbid = RejectFn::new(|_| {
///     let mut response = Response::new("come back later");
///     *response.status_mut() = StatusCode::FORBIDDEN;
///     response
/// });
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let response = forbid.reject(&Rejection::new(RejectionKind::Denied, &parts));
/// assert_eq!(response.status(), StatusCode::FORBIDDEN);
/// ```
// A blanket implementation for closures would take precedence in the compiler's error messages:
// a wrong rejection would be told that it is no closure.
#[derive(Clone, Copy)]
pub struct RejectFn<F>(F);

impl<F> RejectFn<F> {
    /// The rejection that `f` makes.
    #[must_use]
    pub const fn new<T>(f: F) -> Self
    where
        F: Fn(&Rejection<'_>) -> T + Send + Sync + 'static,
        T: IsResponse,
    {
        Self(f)
    }
}

/// A [`Response`], which is what a closure has to return that makes rejections. Implemented for
/// nothing else: it is here for what the compiler says of a tuple.
#[diagnostic::on_unimplemented(
    message = "a rejection cannot be `{Self}`",
    label = "expected an `http::Response`",
    note = "what axum turns into a response, such as a tuple, becomes one by `.into_response()`, from `axum::response::IntoResponse`"
)]
pub trait IsResponse: sealed::Sealed {}

impl<B> IsResponse for Response<B> {}

mod sealed {
    pub trait Sealed {}

    impl<B> Sealed for http::Response<B> {}
}

impl<F, B> Reject<B> for RejectFn<F>
where
    F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync + 'static,
{
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        (self.0)(rejection)
    }
}

impl<F> fmt::Debug for RejectFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejectFn").finish_non_exhaustive()
    }
}
