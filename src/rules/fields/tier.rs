//! The fields of `tier`: quotas by the value of a header.

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Parsed,
        Shape::{Map, Text as AsText},
        Table, Text, Tree,
    },
};

use super::{quota, values};

pub(super) static TIER: Table = Table::new(
    "tier",
    "Quotas by the value of a header. Counts belong to the key, whichever tier it is in.",
    &[&HEADER, &DEFAULT, &QUOTAS],
);

pub(in crate::rules) static HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-plan"),
    ProblemCode::R01,
    values::header_name,
    "The header. Let a proxy or an outer layer write it: a client would choose the best plan.",
)
.required();

pub(in crate::rules) static DEFAULT: Field<Text> = Field::text(
    "default",
    "free",
    "The tier of requests without the header, or with a value that is none of `quotas`.",
)
.required();

pub(in crate::rules) static QUOTAS: Field<Tree> =
    Field::tree("quotas", Map(&quota::QUOTAS), "The quotas of each tier.").required();
