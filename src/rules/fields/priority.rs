//! The fields of `priority`: the share of a limit that a request may use.

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Number, Parsed,
        Shape::{Map, Number as AsNumber, Text as AsText},
        Table, Tree,
    },
};

use super::text_values;

/// The largest share, in percent.
const WHOLE: u64 = 100;

pub(super) static PRIORITY: Table = Table::new(
    "priority",
    "The share of the limit that a request may use: the same for all requests, or by their class.",
    &[&SHARE, &HEADER, &SHARES, &DEFAULT],
);

pub(in crate::rules) static SHARE: Field<Number> = Field::number(
    "share",
    1..=WHOLE,
    "The share of all requests of the rule in percent, instead of the other fields. Default: 100.",
);

pub(in crate::rules) static HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-class"),
    ProblemCode::R01,
    text_values::header_name,
    "The header with the class. Let a proxy or an outer layer write it: a client would choose the best class.",
);

pub(in crate::rules) static SHARES: Field<Tree> = Field::tree(
    "shares",
    Map(&AsNumber(1, WHOLE)),
    "The share of each class in percent.",
);

pub(in crate::rules) static DEFAULT: Field<Number> = Field::number(
    "default",
    1..=WHOLE,
    "The share of requests without the header, or with a class that is none of `shares`. Default: the smallest of `shares`.",
);
