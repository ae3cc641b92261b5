//! The fields of the small tables: `store`, `defaults`, `tier`, items of `schedule`, `count_if`.

use std::ops::RangeInclusive;

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Number, OneOf, Parsed,
        Shape::{Many, Map, Text as AsText},
        Table, Text, Tree,
    },
};

use super::{
    key::KEY_SHAPE,
    quota,
    rule_and_default_fields::{HEADERS, ON_CHANGE, ON_MISSING_KEY},
    text_values, time_of_day,
};

/// Where counts are kept.
pub(super) static STORE: Table =
    Table::new("store", "Where counts are kept.", &[&MAX_KEYS, &ON_FAILURE]);

/// The decisions while Redis does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStoreFailure {
    Local,
    Allow,
    Deny,
}

static FAILURES: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
];

pub(in crate::rules) static MAX_KEYS: Field<Number> = Field::number(
    "max_keys",
    1..=1 << 32,
    "How many keys are remembered. Default: the application's.",
);

pub(in crate::rules) static ON_FAILURE: Field<OneOf<OnStoreFailure>> = Field::one_of(
    "on_failure",
    &FAILURES,
    "What happens while Redis does not answer: `local` counts in this process, `allow` lets pass, `deny` answers 503. Default: local.",
);

/// Values of rules that have none of their own.
pub(super) static DEFAULTS: Table = Table::new(
    "defaults",
    "What rules mean that do not say otherwise.",
    &[&DEFAULT_KEY, &ON_MISSING_KEY, &HEADERS, &ON_CHANGE],
);

pub(in crate::rules) static DEFAULT_KEY: Field<Tree> = Field::tree(
    "key",
    KEY_SHAPE,
    "The key of rules without one. Default: client_ip.",
);

/// Quotas by the value of a header.
pub(super) static TIER: Table = Table::new(
    "tier",
    "Quotas by the value of a header. Counts belong to the key, whichever tier it is in.",
    &[&TIER_HEADER, &DEFAULT_TIER, &TIER_QUOTAS],
);

pub(in crate::rules) static TIER_HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-plan"),
    ProblemCode::R01,
    text_values::header_name,
    "The header. Let a proxy or an outer layer write it: a client would choose the best plan.",
)
.required();

pub(in crate::rules) static DEFAULT_TIER: Field<Text> = Field::text(
    "default",
    "free",
    "The tier of requests without the header, or with a value that is none of `quotas`.",
)
.required();

pub(in crate::rules) static TIER_QUOTAS: Field<Tree> =
    Field::tree("quotas", Map(&quota::QUOTAS), "The quotas of each tier.").required();

/// A quota at a time of day.
pub(super) static SCHEDULED: Table = Table::new(
    "schedule",
    "A quota at a time of day.",
    &[&SCHEDULED_TIME, &SCHEDULED_QUOTA],
);

pub(in crate::rules) static SCHEDULED_TIME: Field<Tree> =
    Field::tree("time", time_of_day::TIMES, "When it is used.").required();

pub(in crate::rules) static SCHEDULED_QUOTA: Field<Tree> =
    Field::tree("quota", quota::QUOTAS, "What is allowed then.").required();

/// Responses that count.
pub(super) static COUNT_IF: Table =
    Table::new("count_if", "Responses that count.", &[&COUNTED_STATUSES]);

pub(in crate::rules) static COUNTED_STATUSES: Field<Parsed<RangeInclusive<u16>>> = Field::parsed(
    "status",
    Many(&AsText("401")),
    ProblemCode::R01,
    text_values::status_codes,
    "Status codes, such as 401, or all of a class, such as 4xx.",
)
.required();
