//! `GET /`: the page, one file that fetches nothing but its stream.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderName, HeaderValue,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use sha2::{Digest as _, Sha256};

const STYLE: &str = concat!(
    include_str!("page/common.css"),
    include_str!("page/live.css")
);
const SCRIPT: &str = concat!(include_str!("page/pen.js"), include_str!("page/live.js"));

/// The page, and its policy: nothing runs but this style and this script.
static PAGE: LazyLock<(String, HeaderValue)> = LazyLock::new(|| {
    let html = include_str!("page/live.html");
    let html = html.replace("{{style}}", STYLE);
    let html = html.replace("{{script}}", SCRIPT);
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let policy = HeaderValue::try_from(policy);
    (
        html,
        policy.unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'")),
    )
});

/// `GET /`.
pub(in crate::admin) async fn page() -> Response {
    let (html, policy) = &*PAGE;
    let value = HeaderValue::from_static;
    let fields: [(HeaderName, HeaderValue); 5] = [
        (CONTENT_TYPE, value("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy.clone()),
        (X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (REFERRER_POLICY, value("no-referrer")),
        (CACHE_CONTROL, value("no-store")),
    ];
    (fields, html.as_str()).into_response()
}

/// The source expression of an inline part.
fn hash(part: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(part)))
}
