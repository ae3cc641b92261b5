//! Fields that a rule and `defaults` both have. A rule's value has priority.

use tower_ratelimit_rulefile::{
    document::Node,
    fields::{
        Field, OneOf,
        Shape::{List, Words},
        Tree,
    },
};

use crate::{limiter::OnChange, middleware::key_extraction_rules::MissingKey};

static MISSING_KEYS: [(&str, MissingKey); 3] = [
    ("share", MissingKey::Share),
    ("reject", MissingKey::Reject),
    ("skip", MissingKey::Skip),
];

/// A field of responses, or a group of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rules) enum HeaderGroup {
    IetfDraft11,
    XRateLimit,
    XRateLimitRetryAfter,
}

static HEADER_GROUPS: [(&str, HeaderGroup); 3] = [
    ("ietf_draft11", HeaderGroup::IetfDraft11),
    ("x_ratelimit", HeaderGroup::XRateLimit),
    ("x_ratelimit_retry_after", HeaderGroup::XRateLimitRetryAfter),
];

static CHANGES: [(&str, OnChange); 2] = [("keep", OnChange::Keep), ("fresh", OnChange::Fresh)];

pub(in crate::rules) static ON_MISSING_KEY: Field<OneOf<MissingKey>> = Field::one_of(
    "on_missing_key",
    &MISSING_KEYS,
    "What happens to a request whose client sent no key: `share` counts all such requests together, `reject` answers 400, `skip` leaves the rule out. Default: share.",
);

pub(in crate::rules) static HEADERS: Field<Tree> = Field::tree(
    "headers",
    List(&Words(&HEADER_GROUPS)),
    "The fields of responses, beside Retry-After. Default: [ietf_draft11, x_ratelimit].",
);

pub(in crate::rules) static ON_CHANGE: Field<OneOf<OnChange>> = Field::one_of(
    "on_change",
    &CHANGES,
    "What becomes of counts when a limit, burst, queue or soft share changes: `keep` goes by the old state, so a bucket that was used up gets its next unit by the new rate; `fresh` starts all keys of the rule afresh. Default: keep.",
);

/// Whether the list of a `headers` field has this group.
pub(in crate::rules) fn has_headers(list: &Node, group: HeaderGroup) -> bool {
    let mut words = HEADER_GROUPS.iter().filter(|(_, known)| *known == group);
    words.any(|(word, _)| list.items().iter().any(|item| item.text() == Some(word)))
}
