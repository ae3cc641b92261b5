//! The fields of `in_flight`: how many requests of a key run at the same time.

use tower_ratelimit_rulefile::fields::{
    Field,
    Shape::{self, Map, Number as AsNumber},
    Table, Text, Tree,
};

use super::text_values::MAX_NUMBER;

/// Wider than what is accepted, so that the compilation reports other numbers under a code of their own.
pub(super) static MOST: Shape = AsNumber(0, MAX_NUMBER);

pub(super) static IN_FLIGHT: Table = Table::new(
    "in_flight",
    "A limit on requests that run at the same time.",
    &[&MAX, &TIERS, &NAME],
);

pub(in crate::rules) static MAX: Field<Tree> = Field::tree(
    "max",
    AsNumber(0, MAX_NUMBER),
    "The most requests of a key at the same time, from 1 to 65535.",
)
.required();

pub(in crate::rules) static TIERS: Field<Tree> = Field::tree(
    "tiers",
    Map(&AsNumber(0, MAX_NUMBER)),
    "The most of a tier of the rule, instead of `max`.",
);

pub(in crate::rules) static NAME: Field<Text> = Field::text(
    "name",
    "uploads",
    "The name of its policy. Default: the rule's name and `.in_flight`.",
);
