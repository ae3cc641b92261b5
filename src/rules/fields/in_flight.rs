//! The fields of `in_flight`: how many requests of a key run at the same time.

use std::time::Duration;

use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Parsed,
        Shape::{self, Map, NumberOfReader, Text as AsText},
        Table, Text, Tree,
    },
};

use super::text_values;

/// The most requests at the same time.
pub(super) const MOST: Shape = NumberOfReader(1, u16::MAX as u64);

pub(super) static IN_FLIGHT: Table = Table::new(
    "in_flight",
    "A limit on requests that run at the same time.",
    &[&MAX, &TIERS, &NAME, &LEASE],
);

pub(in crate::rules) static MAX: Field<Tree> = Field::tree(
    "max",
    MOST,
    "The most requests of a key at the same time, from 1 to 65535.",
)
.required();

pub(in crate::rules) static TIERS: Field<Tree> = Field::tree(
    "tiers",
    Map(&MOST),
    "The most of a tier of the rule, instead of `max`.",
);

pub(in crate::rules) static NAME: Field<Text> = Field::text(
    "name",
    "uploads",
    "The name of its policy. Default: the rule's name and `.in_flight`.",
);

pub(in crate::rules) static LEASE: Field<Parsed<Duration>> = Field::parsed(
    "lease",
    AsText("1m"),
    ProblemCode::R08,
    text_values::lease,
    "The time after which the permits of a node that crashed are free again, from 1s to 24h; in Redis only. Default: 1m.",
);
