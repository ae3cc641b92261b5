//! Responses of the built-in rejections.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{Rejection, RejectionBody};

/// Room for what a rejection and the rate-limit fields need, so that the map is built once.
const MOST_FIELDS: usize = 10;

/// The answer of a built-in rejection: `http` makes it, except to gRPC calls.
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

/// The content of a response to an HTTP client.
#[derive(Debug)]
pub struct Content<B> {
    pub(super) body: B,
    pub(super) content_type: HeaderValue,
    /// The bytes that GET gets, which HEAD is told (RFC 9110, section 8.6).
    pub(super) length: usize,
}

impl<B: RejectionBody> Content<B> {
    pub(super) fn new(
        rejection: &Rejection<'_>,
        content_type: HeaderValue,
        content: Bytes,
    ) -> Self {
        Self {
            length: content.len(),
            body: if rejection.is_head() {
                B::empty()
            } else {
                B::from_bytes(content)
            },
            content_type,
        }
    }

    pub(super) fn into_response(self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = with_status(rejection.status(), self.body);
        let headers = response.headers_mut();
        headers.append(header::CONTENT_TYPE, self.content_type);
        // From an empty body a server would conclude 0. Of any other it is for the server to tell:
        // whoever called the rejection may put another body in its place.
        if rejection.is_head() {
            headers.append(header::CONTENT_LENGTH, self.length.into());
        }
        forbid_caching(headers);
        response
    }
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
