//! `RateLimit-Policy` and `RateLimit`: RFC 9651 lists of strings with parameters.

use http::HeaderName;

use super::{
    IetfDraft,
    binding::Binding,
    prepared::{COMMA, Prepared},
    text::{FieldText, Text},
};
use crate::decision::{Decision, whole_seconds};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

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
