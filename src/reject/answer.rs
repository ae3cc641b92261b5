//! The whole answer to a request that is not let through: the rejection and the limit's fields.

use http::Response;

use super::{Reject, Rejection, RejectionKind, body::Content};
use crate::headers::{DenialFields, Renderer, is_grpc};

/// The whole answer to a request that is not let through: what `reject` makes of it, and the fields
/// about the limit.
#[inline]
pub(crate) fn answer<B>(
    reject: &(impl Reject<B> + ?Sized),
    rejection: &Rejection<'_>,
    renderer: &Renderer,
) -> Response<B> {
    let mut response = match reject.content(rejection) {
        Some(content) => match rejection.decision().and_then(|of| renderer.denial(of)) {
            Some(fields) => return put_together(content, fields, rejection),
            None => content.into_whole_response(rejection),
        },
        None => reject.reject(rejection),
    };
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

/// A denial of which all is known beforehand but for numbers.
fn put_together<B>(
    content: Content<B>,
    fields: DenialFields<'_>,
    rejection: &Rejection<'_>,
) -> Response<B> {
    let mut response = Response::new(content.body);
    *response.status_mut() = rejection.status();
    *response.headers_mut() = fields.with_content(&content.content_type, content.length);
    response
}

/// Whether a gRPC call is answered in gRPC. Its client reads the wait from gRPC's own fields, and
/// an answer of trailers alone should stay small. The request is asked first: that takes less.
fn answers_grpc<B>(rejection: &Rejection<'_>, response: &Response<B>) -> bool {
    rejection.is_grpc() && is_grpc(response.headers())
}

#[cfg(test)]
mod tests;
