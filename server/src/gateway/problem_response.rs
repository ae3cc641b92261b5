//! Problem documents of the gateway.

use axum::{body::Body, response::Response};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};

/// A problem document with the status only.
pub(super) fn problem(status: StatusCode) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{}}}"#,
        status.as_u16()
    );
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The response to a client that has too many requests at the same time.
pub(super) fn too_many() -> Response {
    let mut response = problem(StatusCode::TOO_MANY_REQUESTS);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, second);
    response
}
