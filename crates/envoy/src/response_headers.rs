//! Header fields for the client, which the proxy adds to its response.

use clap::ValueEnum;

use crate::protobuf_messages::{Code, DescriptorStatus, HeaderValue, RateLimit, Unit};

/// A set of header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum HeaderSet {
    /// `Retry-After`, if the request is over its limit: the proxy adds fields to all responses.
    RetryAfter,
    /// `RateLimit` and `RateLimit-Policy`.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    Legacy,
    /// `ratelimit-limit`, `ratelimit-remaining` and `ratelimit-reset`, as Envoy's reference service, or under
    /// [other names](crate::decide::Modes::header_names).
    Envoy,
}

/// The names, with this prefix, of the fields with the limit, the remaining units, and the seconds to its end.
pub(crate) fn header_names(prefix: &str) -> [String; 3] {
    ["limit", "remaining", "reset"].map(|word| format!("{prefix}-{word}"))
}

/// The fields about one limit.
pub(crate) fn fields(
    sets: &[HeaderSet],
    names: &[String; 3],
    status: &DescriptorStatus,
    is_over: bool,
) -> Vec<HeaderValue> {
    let Some(limit) = &status.current_limit else {
        return Vec::new();
    };
    let fields = sets.iter().flat_map(|set| match set {
        // A request that exceeds only limits in shadow mode passes.
        HeaderSet::RetryAfter if is_over && status.code() == Code::OverLimit => {
            vec![field("retry-after", reset(status).to_string())]
        }
        HeaderSet::RetryAfter => Vec::new(),
        HeaderSet::Draft11 => draft11(limit, status),
        HeaderSet::Legacy => three(&header_names("x-ratelimit"), limit, status),
        HeaderSet::Envoy => three(names, limit, status),
    });
    fields.collect()
}

fn field(key: &str, value: String) -> HeaderValue {
    let key = key.to_owned();
    HeaderValue { key, value }
}

/// The seconds until the limit is fresh.
fn reset(status: &DescriptorStatus) -> u64 {
    let duration = status.duration_until_reset.unwrap_or_default();
    duration.seconds.unsigned_abs()
}

fn draft11(limit: &RateLimit, status: &DescriptorStatus) -> Vec<HeaderValue> {
    let (name, requests, window) = (name(limit), limit.requests_per_unit, window(limit));
    let (remaining, reset) = (status.limit_remaining, reset(status));
    vec![
        field(
            "ratelimit-policy",
            format!("\"{name}\";q={requests};w={window}"),
        ),
        field("ratelimit", format!("\"{name}\";r={remaining};t={reset}")),
    ]
}

/// The limit, the remaining units, and the seconds to its end, each in a field of its own.
fn three(names: &[String; 3], limit: &RateLimit, status: &DescriptorStatus) -> Vec<HeaderValue> {
    let values = [
        u64::from(limit.requests_per_unit),
        status.limit_remaining.into(),
        reset(status),
    ];
    let fields = names.iter().zip(values);
    fields
        .map(|(name, value)| field(name, value.to_string()))
        .collect()
}

/// The limit's name, restricted to the characters of a structured field.
fn name(limit: &RateLimit) -> String {
    let plain = limit
        .name
        .chars()
        .filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'));
    Some(plain.collect())
        .filter(|name: &String| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}

fn window(limit: &RateLimit) -> u64 {
    let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
    unit.seconds() * u64::from(limit.unit_multiplier.unwrap_or(1))
}
