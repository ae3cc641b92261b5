use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{Rejection, RejectionBody};

/// Room for what a rejection and the rate-limit fields need, so that the map is built once.
const MOST_FIELDS: usize = 10;

/// A response to HTTP clients; `body` is not asked for in answer to HEAD.
pub(super) fn http<B: RejectionBody>(
    rejection: &Rejection<'_>,
    content_type: &'static str,
    body: impl FnOnce() -> Bytes,
) -> Response<B> {
    let body = if rejection.wants_body() {
        B::from_bytes(body())
    } else {
        B::empty()
    };
    let mut response = with_status(rejection.status(), body);
    let content_type = HeaderValue::from_static(content_type);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
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
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
