//! Responses of the built-in rejections.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{Rejection, RejectionBody, body::Content};

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

    /// The response, without a length for GET: the caller of the rejection may replace the body.
    pub(super) fn into_response(self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = self.into_whole_response(rejection);
        // From an empty body a server would conclude 0.
        if !rejection.is_head() {
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        response
    }
}

impl<B> Content<B> {
    /// The response as it is sent, without the fields about the limit.
    pub(super) fn into_whole_response(self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = with_status(rejection.status(), self.body);
        let headers = response.headers_mut();
        headers.append(header::CONTENT_TYPE, self.content_type);
        headers.append(header::CONTENT_LENGTH, self.length.into());
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
