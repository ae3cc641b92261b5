//! Rejections as plain text, and without a body.

use bytes::Bytes;
use http::{HeaderValue, Response};

use super::{Reject, Rejection, RejectionBody, RejectionKind, body::Content, built_in_responses};

/// The status in words, as `text/plain`.
///
/// ```
/// use tower_ratelimit::reject::{PlainText, Reject, Rejection, RejectionKind};
///
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let rejection = Rejection::new(RejectionKind::Denied, &parts);
/// let response: http::Response<String> = PlainText.reject(&rejection);
/// assert_eq!(response.body(), "Too Many Requests\n");
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a name for a choice, with nothing to it"
)]
pub struct PlainText;

/// Only the status and the fields.
///
/// ```
/// use tower_ratelimit::reject::{Empty, Reject, Rejection, RejectionKind};
///
/// let (parts, ()) = http::Request::new(()).into_parts();
/// let rejection = Rejection::new(RejectionKind::Denied, &parts);
/// let response: http::Response<String> = Empty.reject(&rejection);
/// assert_eq!(response.status(), 429);
/// assert!(response.body().is_empty());
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a name for a choice, with nothing to it"
)]
pub struct Empty;

impl<B: RejectionBody> Reject<B> for PlainText {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        built_in_responses::built_in(rejection, || content(rejection).into_response(rejection))
    }

    fn content(&self, rejection: &Rejection<'_>) -> Option<Content<B>> {
        (!rejection.is_grpc()).then(|| content(rejection))
    }
}

impl<B: RejectionBody> Reject<B> for Empty {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        built_in_responses::built_in(rejection, || built_in_responses::without_content(rejection))
    }
}

fn content<B: RejectionBody>(rejection: &Rejection<'_>) -> Content<B> {
    let words = Bytes::from_static(in_words(rejection.kind()).as_bytes());
    let content_type = const { HeaderValue::from_static("text/plain; charset=utf-8") };
    Content::new(rejection, content_type, words)
}

const fn in_words(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::Denied => "Too Many Requests\n",
        RejectionKind::Banned => "Forbidden\n",
        RejectionKind::KeyMissing => "Bad Request\n",
        RejectionKind::KeyUnavailable => "Internal Server Error\n",
        RejectionKind::LimiterFailed | RejectionKind::Shed => "Service Unavailable\n",
    }
}
