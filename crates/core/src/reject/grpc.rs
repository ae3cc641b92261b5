//! gRPC's denials: a response that consists of trailers only, which travel as HTTP headers.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use super::{Rejection, RejectionBody, RejectionKind, built_in::with_status};
use crate::{
    decision::{Decision, Unit},
    headers::is_grpc,
};

static STATUS: HeaderName = HeaderName::from_static("grpc-status");
static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
static PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const CONTENT_TYPE: &str = "application/grpc";

/// The type of the message in `grpc-status-details-bin`.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The longest `google.protobuf.Duration`, about 10,000 years.
const LONGEST_SECONDS: u64 = 315_576_000_000;

impl Rejection<'_> {
    /// Whether the request is a gRPC call, by its method and content type; never where the layer's
    /// [`grpc`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.grpc) is switched off.
    pub fn is_grpc(&self) -> bool {
        // A call is always a POST: a GET that claims to be one must not get 200, which
        // caches keep.
        self.detects_grpc && self.parts().method == Method::POST && is_grpc(&self.parts().headers)
    }

    /// The response to a gRPC call, see the [module](super#grpc).
    pub fn grpc_response<B: RejectionBody>(&self) -> Response<B> {
        self.grpc_response_with(default_message(self.kind()))
    }

    /// The response with a message of your own, percent-encoded as gRPC requires. Many peers accept
    /// no more than 8 KiB of fields, so it should be short.
    pub fn grpc_response_with<B: RejectionBody>(&self, message: &str) -> Response<B> {
        response(self, message)
    }
}

const fn default_message(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::Denied => "rate limit exceeded",
        RejectionKind::Shed => "temporary reduced capacity",
        RejectionKind::Banned => "forbidden",
        RejectionKind::KeyMissing => "bad request",
        RejectionKind::KeyUnavailable => "internal server error",
        RejectionKind::LimiterFailed => "service unavailable",
    }
}

/// The codes of denials, as protobuf encodes them.
const RESOURCE_EXHAUSTED: u64 = 8;
const UNAVAILABLE: u64 = 14;

fn status(rejection: &Rejection<'_>) -> &'static str {
    match rejection.kind() {
        RejectionKind::KeyMissing => "3",
        RejectionKind::Banned => "7",
        RejectionKind::Shed if rejection.status() != StatusCode::TOO_MANY_REQUESTS => "14",
        RejectionKind::Denied | RejectionKind::Shed => "8",
        RejectionKind::KeyUnavailable => "13",
        RejectionKind::LimiterFailed => "14",
    }
}

fn response<B: RejectionBody>(rejection: &Rejection<'_>, message: &str) -> Response<B> {
    let mut response = with_status(StatusCode::OK, B::empty());
    let status = status(rejection);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    headers.insert(&STATUS, HeaderValue::from_static(status));
    headers.insert(&MESSAGE, ascii(percent_encode(message)));
    if matches!(
        rejection.kind(),
        RejectionKind::Denied | RejectionKind::Shed
    ) {
        let code = match status {
            "14" => UNAVAILABLE,
            _ => RESOURCE_EXHAUSTED,
        };
        put_wait(rejection.decision(), (code, message), headers);
    }
    response
}

fn put_wait(decision: Option<&Decision>, (code, message): (u64, &str), headers: &mut HeaderMap) {
    if let Some(wait) = decision.and_then(Decision::retry_after) {
        let details = status_with_retry_info((code, message), wait);
        headers.insert(&DETAILS, ascii(BASE64_STANDARD_NO_PAD.encode(details)));
        headers.insert(&PUSHBACK, HeaderValue::from(pushback_millis(wait)));
    } else if !decision.is_some_and(ends_some_time) {
        headers.insert(&PUSHBACK, HeaderValue::from_static("-1"));
    }
}

/// Whether it passes once others have ended, which may be soon: the client's own back-off serves
/// better than any number of ours.
fn ends_some_time(denial: &Decision) -> bool {
    denial.binding().unit() == Unit::ConcurrentRequests
}

/// Rounded up, so that no client returns too early.
fn pushback_millis(wait: Duration) -> i32 {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

fn ascii(text: impl Into<Vec<u8>>) -> HeaderValue {
    HeaderValue::try_from(text.into()).expect("encoders write printable ASCII only")
}

/// The encoding of `grpc-message` in gRPC over HTTP/2; of the space as well, as tonic does.
fn percent_encode(message: &str) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";

    let mut text = Vec::with_capacity(message.len() + 16);
    for byte in message.bytes() {
        match byte {
            b'%' | b'\0'..=b' ' | b'\x7F'.. => {
                let [high, low] = [byte >> 4, byte & 0xF].map(|half| HEX[usize::from(half)]);
                text.extend([b'%', high, low]);
            }
            _ => text.push(byte),
        }
    }
    text
}

/// A `google.rpc.Status` whose details are one `google.rpc.RetryInfo`, in protobuf.
fn status_with_retry_info((code, message): (u64, &str), wait: Duration) -> Vec<u8> {
    let mut retry_info = Vec::new();
    put_bytes(1, &duration(wait), &mut retry_info);

    let mut any = Vec::new();
    put_bytes(1, RETRY_INFO.as_bytes(), &mut any);
    put_bytes(2, &retry_info, &mut any);

    let mut status = Vec::new();
    put_varint(1, code, &mut status);
    put_bytes(2, message.as_bytes(), &mut status);
    put_bytes(3, &any, &mut status);
    status
}

fn duration(wait: Duration) -> Vec<u8> {
    let mut message = Vec::new();
    put_varint(1, wait.as_secs().min(LONGEST_SECONDS), &mut message);
    put_varint(2, u64::from(wait.subsec_nanos()), &mut message);
    message
}

/// A field of wire type 0; as in proto3, 0 is left out.
fn put_varint(field: u8, value: u64, to: &mut Vec<u8>) {
    if value > 0 {
        to.push(field << 3);
        varint(value, to);
    }
}

/// A field of wire type 2.
fn put_bytes(field: u8, bytes: &[u8], to: &mut Vec<u8>) {
    to.push(field << 3 | 2);
    varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

fn varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}
