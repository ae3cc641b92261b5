//! `RateLimit-Policy` and `RateLimit`: RFC 9651 lists of strings with parameters.

use http::{HeaderName, HeaderValue};

use super::{
    IetfDraft,
    binding::Binding,
    prepared::{Prepared, quoted},
    text::{FieldText, Text},
};
use crate::decision::{Decision, Policy, Unit, whole_seconds};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Between two items of a list.
const COMMA: &[u8] = b", ";

/// The value of `RateLimit-Policy`. An RFC 9651 list must not be empty: without policies there is
/// none.
pub(super) fn policy_list(
    IetfDraft::Draft11: IetfDraft,
    policies: &[Policy],
) -> Option<HeaderValue> {
    if policies.is_empty() {
        return None;
    }
    let mut scratch = FieldText::new();
    write_policies(policies, &mut scratch);
    let whole = scratch.field_since(0);
    Some(scratch.finish().value(whole))
}

fn write_policies(policies: &[Policy], to: &mut FieldText) {
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
pub(super) fn status_list(
    IetfDraft::Draft11: IetfDraft,
    decision: &Decision,
    binding: &Binding<'_>,
    texts: &Prepared,
    to: &mut FieldText,
) -> Option<Text> {
    for (status, text) in texts.with_statuses(decision) {
        let figures = binding.figures_of(status);
        let Some(remaining) = figures.remaining else {
            continue;
        };
        if to.len() > 0 {
            to.push(COMMA);
        }
        to.push(&text.opening);
        to.push_number(remaining);
        if let Some(window) = figures.window {
            to.push(b";t=");
            to.push_number(whole_seconds(window));
        }
    }
    (to.len() > 0).then(|| to.field_since(0))
}
