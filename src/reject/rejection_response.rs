//! The response to a request that does not pass: a rejection with the fields about the limit.

use http::Response;

use super::{Reject, Rejection, RejectionKind, body::Content};
use crate::headers::{DenialFields, Renderer, is_grpc};

/// The response to a request that does not pass, by `reject`, with the fields about the limit.
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

/// A denial by a built-in rejection: only its numbers are new.
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

/// Whether a gRPC call is answered in gRPC. Its client reads the wait from gRPC's own fields, and a
/// response of trailers alone should be small. The request is checked first: that takes less time.
fn answers_grpc<B>(rejection: &Rejection<'_>, response: &Response<B>) -> bool {
    rejection.is_grpc() && is_grpc(response.headers())
}

#[cfg(test)]
mod tests;
