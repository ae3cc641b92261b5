//! `RateLimit-Policy` and `RateLimit`: RFC 9651 lists of strings with parameters.

use http::HeaderName;

use super::{
    policy::{PolicyText, quoted},
    scratch::Scratch,
};
use crate::decision::{Decision, Policy, QuotaStatus, Unit, whole_seconds};

pub(super) static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Between two items of a list.
const COMMA: &[u8] = b", ";

/// The value of `RateLimit-Policy`.
pub(super) fn write_policies(policies: &[Policy], to: &mut Scratch) {
    for (position, policy) in policies.iter().enumerate() {
        if position > 0 {
            to.push(COMMA);
        }
        to.push(&quoted(policy.name()));
        to.push(b";q=");
        to.push_number(policy.limit());
        match (policy.unit(), policy.window()) {
            (Unit::ConcurrentRequests, _) => to.push(b";qu=\"concurrent-requests\""),
            (Unit::Requests, None) => {}
            (Unit::Requests, Some(window)) => {
                to.push(b";w=");
                to.push_number(whole_seconds(window).max(1));
            }
        }
    }
}

/// The value of `RateLimit`; nothing when no quota says what remains.
#[inline]
pub(super) fn write_statuses(decision: &Decision, policies: &[PolicyText], to: &mut Scratch) {
    for status in decision.quotas() {
        let Some(remaining) = status.remaining() else {
            continue;
        };
        if to.len() > 0 {
            to.push(COMMA);
        }
        match PolicyText::of(policies, status.name()) {
            Some(policy) => to.push(&policy.quoted_name),
            None => to.push(&quoted(status.name())),
        }
        to.push(b";r=");
        to.push_number(remaining);
        write_window(status, to);
    }
}

#[inline]
fn write_window(status: &QuotaStatus, to: &mut Scratch) {
    if let Some(window) = PolicyText::window_of(status) {
        to.push(b";t=");
        to.push_number(whole_seconds(window));
    }
}
