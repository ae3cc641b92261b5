//! JSON responses of the admin service.

use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

/// A response, or the error response.
pub(super) type Answer = Result<Response, Response>;

pub(super) fn answer(status: StatusCode, value: &Value) -> Response {
    let content = [(CONTENT_TYPE, "application/json")];
    (status, content, format!("{value}\n")).into_response()
}

pub(super) fn ok(value: &Value) -> Response {
    answer(StatusCode::OK, value)
}

pub(super) fn fault(status: StatusCode, text: impl Into<String>) -> Response {
    answer(status, &json!({"error": text.into()}))
}

pub(super) fn not_found(text: impl Into<String>) -> Response {
    fault(StatusCode::NOT_FOUND, text)
}

pub(super) fn bad(text: impl Into<String>) -> Response {
    fault(StatusCode::BAD_REQUEST, text)
}
