//! `RateLimit-Policy` and `RateLimit`: RFC 9651 lists of strings with parameters.

use http::HeaderName;

use super::{
    IetfDraft,
    constant_field_texts::{COMMA, PolicyText},
    quota_numbers::KnownNumbers,
    text_buffer::{BufferedText, TextBuffer},
};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Writes the value of `RateLimit`; `None` if the remaining units of no quota are known.
// Inlined into each caller: the texts of one quota then need no loop.
#[inline(always)]
pub(super) fn status_list<'a>(
    IetfDraft::Draft11: IetfDraft,
    quotas: impl Iterator<Item = (KnownNumbers, &'a PolicyText)>,
    to: &mut TextBuffer,
) -> Option<BufferedText> {
    for (numbers, text) in quotas {
        let Some(remaining) = numbers.remaining else {
            continue;
        };
        if to.len() > 0 {
            to.push(COMMA);
        }
        to.push(&text.opening);
        to.push_number(remaining);
        if let Some(seconds) = numbers.seconds {
            to.push(b";t=");
            to.push_number(seconds);
        }
    }
    (to.len() > 0).then(|| to.field_since(0))
}
