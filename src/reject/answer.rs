//! The whole answer to a request that is not let through: the rejection and the limit's fields.

use http::Response;

use super::{Reject, Rejection, RejectionKind, is_grpc};
use crate::headers::Renderer;

/// The whole answer to a request that is not let through: what `reject` makes of it, and the fields
/// about the limit.
#[inline]
pub(crate) fn answer<B>(
    reject: &(impl Reject<B> + ?Sized),
    rejection: &Rejection<'_>,
    renderer: &Renderer,
) -> Response<B> {
    if let Some(response) = denial(reject, rejection, renderer) {
        return response;
    }
    let mut response = reject.reject(rejection);
    if answers_grpc(rejection, &response) {
        return response;
    }
    if let Some(decision) = rejection.decision() {
        let status = response.status();
        renderer.apply(decision, status, response.headers_mut());
    } else if rejection.kind() == RejectionKind::LimiterFailed {
        renderer.apply_failure(response.headers_mut());
    }
    response
}

/// A denial put together at once, if all that it says is known beforehand but for numbers.
#[inline]
fn denial<B>(
    reject: &(impl Reject<B> + ?Sized),
    rejection: &Rejection<'_>,
    renderer: &Renderer,
) -> Option<Response<B>> {
    let fields = renderer.denial(rejection.decision()?)?;
    let content = reject.content(rejection)?;
    let mut response = Response::new(content.body);
    *response.status_mut() = rejection.status();
    *response.headers_mut() = fields.with_content(&content.content_type, content.length);
    Some(response)
}

/// Whether a gRPC call is answered in gRPC. Its client reads the wait from gRPC's own fields, and
/// an answer of trailers alone should stay small. The request is asked first: that takes less.
fn answers_grpc<B>(rejection: &Rejection<'_>, response: &Response<B>) -> bool {
    rejection.is_grpc() && is_grpc(response.headers())
}
