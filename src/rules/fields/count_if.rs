//! The field of `count_if`: the responses that count.

use std::ops::RangeInclusive;

use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Parsed,
        Shape::{Many, Text as AsText},
        Table,
    },
};

use super::values;

pub(super) static COUNT_IF: Table = Table::new("count_if", "Responses that count.", &[&STATUS]);

pub(in crate::rules) static STATUS: Field<Parsed<RangeInclusive<u16>>> = Field::parsed(
    "status",
    Many(&AsText("401")),
    ProblemCode::R01,
    values::status_codes,
    "Status codes, such as 401, or all of a class, such as 4xx.",
)
.required();
