//! Header fields of responses: those that tower-ratelimit writes, and those of other servers.
//!
//! All work is bounded: a field of more than [`LONGEST_FIELD`] bytes is ignored, only the most
//! restrictive quotas count, and no function fails.

mod date;
mod duration;
mod grpc;
mod least_remaining;
mod legacy;
mod provider_fields;
mod rate_limit;
mod reported_quota;
mod retry_after;
mod structured_list;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

pub(crate) use self::{
    grpc::{Grpc, grpc},
    reported_quota::{Refill, ReportedQuota, ReportedQuotas},
    retry_after::{has_retry_after, retry_after},
};
use crate::units::{REQUESTS, Unit};
use tower_ratelimit::clock::Timestamp;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The most bytes of one field, all its lines together.
const LONGEST_FIELD: usize = 8_192;

/// The quotas of requests in a response that arrived at `now`: from `RateLimit`, otherwise from the older
/// fields.
#[inline]
pub(crate) fn quotas(headers: &HeaderMap, now: Timestamp) -> ReportedQuotas {
    let mut quotas = rate_limit::quotas(headers, REQUESTS);
    if quotas.is_empty() && legacy::may_exist(headers) {
        match legacy::quota(headers, now) {
            Some(quota) => quotas.extend([quota]),
            None => quotas.extend(provider_fields::quotas(headers, now, REQUESTS)),
        }
    }
    quotas
}

/// The quotas of another unit: from `RateLimit`, whose policies name it, otherwise from the fields of
/// providers.
pub(crate) fn quotas_of(headers: &HeaderMap, now: Timestamp, unit: Unit) -> ReportedQuotas {
    let mut quotas = rate_limit::quotas(headers, unit);
    if quotas.is_empty() {
        quotas.extend(provider_fields::quotas(headers, now, unit));
    }
    quotas
}

/// The remaining requests in an older field, with or without a reset.
pub(crate) fn legacy_remaining(headers: &HeaderMap) -> Option<u64> {
    legacy::remaining(headers).or_else(|| provider_fields::remaining(headers))
}

/// `x-should-retry`: whether the server wants the request again.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match only_line(headers, &SHOULD_RETRY)? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// The lines of a field joined; `None` if it is missing, too long or not text.
fn joined<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    let mut lines = headers.get_all(name).iter();
    let mut text = Cow::Borrowed(lines.next()?.to_str().ok()?);
    for line in lines {
        if text.len() + line.len() > LONGEST_FIELD {
            return None;
        }
        let text = text.to_mut();
        text.push_str(", ");
        text.push_str(line.to_str().ok()?);
    }
    (text.len() <= LONGEST_FIELD).then_some(text)
}

/// The only line of a field; `None` for several.
fn only_line<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?.trim_ascii();
    (lines.next().is_none() && line.len() <= LONGEST_FIELD).then_some(line)
}

/// The values of an older field, whose lines were joined: texts between commas. The comma of a date separates
/// nothing.
fn values(text: &str) -> impl Iterator<Item = &str> + Clone {
    let mut rest = Some(text);
    let values = std::iter::from_fn(move || {
        let text = rest?;
        let mut commas = text.match_indices(',').map(|(at, _)| at);
        let end = match commas.next() {
            Some(at) if is_weekday(text[..at].trim_ascii()) => commas.next(),
            first => first,
        };
        rest = end.map(|at| &text[at + 1..]);
        Some(text[..end.unwrap_or(text.len())].trim_ascii())
    });
    // RFC 9110 §5.6.1: empty values are ignored.
    values.filter(|value| !value.is_empty())
}

/// Whether the text is a day of the week: `Tue`, or `Tuesday` in the form of RFC 850.
fn is_weekday(text: &str) -> bool {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

    let is_word = text.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word && DAYS.iter().any(|day| text.starts_with(day))
}

/// A number, whose fraction does not count: half a unit is none.
fn rounded_down(text: &str) -> Option<u64> {
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    parse_digits(fraction)?;
    parse_digits(number)
}

/// A number of digits only; saturating.
fn parse_digits(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
