//! `RateLimit-Policy` and `RateLimit`: RFC 9651 lists of strings with parameters.

use http::HeaderName;

use super::{
    IetfDraft,
    figures::ToldNumbers,
    prepared::{COMMA, PolicyText},
    text::{FieldText, Text},
};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The value of `RateLimit`; nothing when no quota says what remains.
#[inline]
pub(super) fn status_list<'a>(
    IetfDraft::Draft11: IetfDraft,
    quotas: impl Iterator<Item = (ToldNumbers, &'a PolicyText)>,
    to: &mut FieldText,
) -> Option<Text> {
    for (told, text) in quotas {
        let Some(remaining) = told.remaining else {
            continue;
        };
        if to.len() > 0 {
            to.push(COMMA);
        }
        to.push(&text.opening);
        to.push_number(remaining);
        if let Some(seconds) = told.seconds {
            to.push(b";t=");
            to.push_number(seconds);
        }
    }
    (to.len() > 0).then(|| to.field_since(0))
}
