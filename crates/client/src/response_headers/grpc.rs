//! Waits in gRPC's own fields, of a response that consists of trailers only.

use std::time::Duration;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, HeaderName};
use tower_ratelimit::headers::is_grpc;

use super::field_values::only_line;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const UNKNOWN: &str = "2";
const DEADLINE_EXCEEDED: &str = "4";
const RESOURCE_EXHAUSTED: &str = "8";
const INTERNAL: &str = "13";
const UNAVAILABLE: &str = "14";

/// The type URL of the message, after the host.
const RETRY_INFO: &[u8] = b"/google.rpc.RetryInfo";

/// Accepts missing padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The failure of a gRPC response. The equivalent in HTTP is 429 or 5xx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grpc {
    /// The limit is used up; no gRPC field contains a wait.
    Exhausted,
    /// The call may be sent again after this time.
    RetryAfter(Duration),
    /// The call must not be sent again.
    DoNotRetry,
    /// The server failed; no gRPC field contains a wait.
    Failed,
}

/// The refusal, the wait or the failure in a gRPC response; `None` for a success and for other
/// responses.
pub(crate) fn grpc(headers: &HeaderMap) -> Option<Grpc> {
    if !is_grpc(headers) {
        return None;
    }
    let silent = match only_line(headers, &STATUS)? {
        RESOURCE_EXHAUSTED => Grpc::Exhausted,
        UNAVAILABLE => Grpc::Failed,
        UNKNOWN | DEADLINE_EXCEEDED | INTERNAL => return Some(Grpc::Failed),
        _ => return None,
    };
    if headers.contains_key(&PUSHBACK) {
        let wait = only_line(headers, &PUSHBACK).and_then(pushback);
        return Some(wait.map_or(Grpc::DoNotRetry, Grpc::RetryAfter));
    }
    let details = only_line(headers, &DETAILS).and_then(|text| BASE64.decode(text).ok());
    let delay = details.and_then(|details| retry_delay(&details));
    Some(delay.map_or(silent, Grpc::RetryAfter))
}

/// Milliseconds as an `i32`; a negative number, or any other text, forbids a retry.
fn pushback(text: &str) -> Option<Duration> {
    let leads_with_zero = text.len() > 1 && text.starts_with('0');
    if leads_with_zero || text.starts_with('+') {
        return None;
    }
    let millis = u64::try_from(text.parse::<i32>().ok()?).ok()?;
    Some(Duration::from_millis(millis))
}

/// The delay of the first `google.rpc.RetryInfo` in a `google.rpc.Status`.
fn retry_delay(status: &[u8]) -> Option<Duration> {
    let details = fields(status).filter(|(number, _)| *number == 3);
    let delay = details
        .filter_map(|(_, any)| {
            let any = any.bytes()?;
            let kind = fields(any).find(|(number, _)| *number == 1)?.1.bytes()?;
            let value = fields(any).find(|(number, _)| *number == 2)?.1.bytes()?;
            kind.ends_with(RETRY_INFO).then_some(value)
        })
        .next()?;
    // A delay of zero has no field.
    let Some((_, duration)) = fields(delay).find(|(number, _)| *number == 1) else {
        return Some(Duration::ZERO);
    };
    let duration = duration.bytes()?;
    let of = |wanted| fields(duration).find(|(number, _)| *number == wanted);
    let [seconds, nanos] = [1, 2].map(|number| of(number).map_or(0, |(_, value)| value.number()));
    // Negative numbers are encoded as the largest ones.
    let positive = i64::try_from(seconds).is_ok() && nanos < 1_000_000_000;
    positive.then(|| Duration::new(seconds, nanos as u32))
}

/// The value of a field of a protobuf message.
#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }
}

/// The fields of a protobuf message, up to the first malformed one.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, FieldValue<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => FieldValue::Number(varint(&mut message)?),
            1 => FieldValue::Bytes(take(&mut message, 8)?),
            2 => {
                let length = varint(&mut message)?;
                FieldValue::Bytes(take(&mut message, length)?)
            }
            5 => FieldValue::Bytes(take(&mut message, 4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
    *message = rest;
    Some(taken)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
