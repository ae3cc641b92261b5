use std::time::Duration;

use http::HeaderValue;

use super::number;
use crate::decision::{Policy, QuotaStatus, Unit};

/// What is ready of a policy before any decision.
#[derive(Debug)]
pub(super) struct PolicyText {
    name: &'static str,
    pub(super) quoted_name: Box<[u8]>,
    pub(super) limit: u64,
    pub(super) limit_value: HeaderValue,
}

impl PolicyText {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            name: policy.name(),
            quoted_name: quoted(policy.name()).into_boxed_slice(),
            limit: policy.limit(),
            limit_value: number::header_value(policy.limit()),
        }
    }

    #[inline]
    pub(super) fn of<'a>(policies: &'a [Self], name: &str) -> Option<&'a Self> {
        policies.iter().find(|policy| policy.name == name)
    }

    /// The status's effective window, which a limit on concurrency has none of.
    #[inline]
    pub(super) fn window_of(status: &QuotaStatus) -> Option<Duration> {
        let timed = status.unit() != Unit::ConcurrentRequests;
        status.effective_window().filter(|_| timed)
    }
}

/// A String of RFC 9651.
///
/// A checked quota's name is printable ASCII. A policy from a limiter of the user's own may have
/// any name, and one odd character would cost clients the whole field: it becomes a `?`.
pub(super) fn quoted(name: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 2);
    text.push(b'"');
    for character in name.chars() {
        match character {
            '"' | '\\' => text.extend([b'\\', character as u8]),
            ' '..='~' => text.push(character as u8),
            _ => text.push(b'?'),
        }
    }
    text.push(b'"');
    text
}
