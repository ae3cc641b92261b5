//! Responses of the built-in rejections.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{Rejection, RejectionBody};

/// Room for what a rejection and the rate-limit fields need, so that the map is built once.
const MOST_FIELDS: usize = 10;

/// What a built-in rejection answers: `http` makes it, except to gRPC calls.
pub(super) fn built_in<B: RejectionBody>(
    rejection: &Rejection<'_>,
    http: impl FnOnce() -> Response<B>,
) -> Response<B> {
    if rejection.is_grpc() {
        rejection.grpc_response()
    } else {
        http()
    }
}

/// A response to HTTP clients with this content, of which HEAD gets the length alone.
pub(super) fn with_content<B: RejectionBody>(
    rejection: &Rejection<'_>,
    content_type: &'static str,
    content: Bytes,
) -> Response<B> {
    // What GET would be told (RFC 9110, section 8.6); from an empty body a server concludes 0.
    let length_only = rejection.is_head().then_some(content.len());
    let body = match length_only {
        Some(_) => B::empty(),
        None => B::from_bytes(content),
    };
    let mut response = with_status(rejection.status(), body);
    let content_type = HeaderValue::from_static(content_type);
    let headers = response.headers_mut();
    headers.append(header::CONTENT_TYPE, content_type);
    if let Some(length) = length_only {
        headers.append(header::CONTENT_LENGTH, length.into());
    }
    forbid_caching(headers);
    response
}

/// A response to HTTP clients that has no content.
pub(super) fn without_content<B: RejectionBody>(rejection: &Rejection<'_>) -> Response<B> {
    let mut response = with_status(rejection.status(), B::empty());
    forbid_caching(response.headers_mut());
    response
}

pub(super) fn with_status<B>(status: StatusCode, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().reserve(MOST_FIELDS);
    response
}

fn forbid_caching(headers: &mut HeaderMap) {
    headers.append(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
