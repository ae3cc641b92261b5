//! The texts of the numbers in a response's fields.

use http::HeaderValue;

use super::{
    IetfDraft, constant_field_texts::PolicyText, ietf, quota_numbers::KnownNumbers,
    text_buffer::TextBuffer,
};

/// The values of the fields that report numbers.
#[derive(Debug)]
pub(super) struct FieldTexts {
    /// `RateLimit`; `None` if the response does not have it.
    pub(super) list: Option<HeaderValue>,
    /// `X-RateLimit-Remaining`.
    pub(super) remaining: HeaderValue,
    /// `X-RateLimit-Reset`, and the wait of a denial by the one quota.
    pub(super) seconds: HeaderValue,
    /// The wait of a denial by any quotas, if it was written.
    pub(super) wait: Option<HeaderValue>,
}

impl FieldTexts {
    /// Writes all texts into one buffer.
    // Inlined: without a wait the compiler leaves its part out.
    #[inline(always)]
    pub(super) fn write<'a>(
        draft: Option<IetfDraft>,
        quotas: impl Iterator<Item = (KnownNumbers, &'a PolicyText)>,
        (remaining, seconds): (u64, u64),
        wait: Option<u64>,
    ) -> Self {
        let mut buffer = TextBuffer::new();
        let list = draft.and_then(|draft| ietf::status_list(draft, quotas, &mut buffer));
        let (remaining, seconds) = (buffer.number(remaining), buffer.number(seconds));
        let wait = wait.map(|wait| buffer.number(wait));
        let finished = buffer.finish();
        Self {
            wait: wait.map(|text| finished.value(text)),
            remaining: finished.value(remaining),
            seconds: finished.value(seconds),
            list: list.map(|text| finished.into_value(text)),
        }
    }
}
