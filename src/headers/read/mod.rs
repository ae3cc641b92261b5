//! Fields of responses as a client reads them: those that this crate writes, and what others write
//! in their place.
//!
//! Whatever a server sends is bounded here: a field of more than [`LONGEST_FIELD`] bytes is not
//! read, of many quotas the few that matter most count, and no function fails.

mod date;
mod duration;
mod grpc;
mod legacy;
mod list;
mod ratelimit;
mod retry_after;
#[cfg(test)]
mod tests;
mod told;

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

pub(crate) use self::{
    grpc::{Grpc, grpc},
    retry_after::retry_after,
    told::{Refill, ToldQuota, ToldQuotas},
};
use crate::clock::Timestamp;

/// All lines of one field together.
const LONGEST_FIELD: usize = 8_192;

/// The quotas that a response received at `now` tells: by `RateLimit`, else by the older fields.
pub(crate) fn quotas(headers: &HeaderMap, now: Timestamp) -> ToldQuotas {
    let told = ratelimit::quotas(headers);
    match told.is_empty() {
        true => legacy::quota(headers, now).into_iter().collect(),
        false => told,
    }
}

/// The units that a legacy field says are left, whether or not it says for how long.
pub(crate) fn legacy_remaining(headers: &HeaderMap) -> Option<u64> {
    legacy::remaining(headers)
}

/// The lines of a field as one; `None` if there is none, or they are too long or no text.
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

/// The only line of a field; several mean nothing.
fn lone<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?.trim_ascii();
    (lines.next().is_none() && line.len() <= LONGEST_FIELD).then_some(line)
}

/// A number of digits and nothing else; one that is too large is the largest.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
