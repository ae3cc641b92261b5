//! The fields of `cost`, and of its field `header`.

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

/// The largest cost of a request, in units.
pub(super) const MAX_COST: u64 = 1_000_000;

pub(super) static COST: Table = Table::new(
    "cost",
    "The largest of the parts that apply.",
    &[&DEFAULT, &METHOD, &HEADER],
);

pub(in crate::rules) static DEFAULT: Field<Number> = Field::number(
    "default",
    0..=MAX_COST,
    "What a request takes at least. Default: 1.",
);

pub(in crate::rules) static METHOD: Field<Tree> = Field::tree(
    "method",
    Map(&AsNumber(0, MAX_COST)),
    "What a method takes.",
);

pub(in crate::rules) static HEADER: Field<Tree> =
    Field::table("header", &COST_HEADER, "What a header says.");

static COST_HEADER: Table = Table::new(
    "cost.header",
    "A cost that the request brings.",
    &[&HEADER_NAME, &HEADER_MAX],
);

pub(in crate::rules) static HEADER_NAME: Field<Parsed<HeaderName>> = Field::parsed(
    "name",
    AsText("x-cost"),
    ProblemCode::R01,
    text_values::header_name,
    "The header. One that is no number, or above `max`, counts as `max`.",
)
.required();

pub(in crate::rules) static HEADER_MAX: Field<Number> =
    Field::number("max", 1..=MAX_COST, "The most that it can say.").required();
