//! The fields of a quota, and the shapes of quotas.

use tower_ratelimit_rulefile::fields::{
    Field, Number,
    Shape::{self, Either, List, Named, Table as InTable, Text as AsText},
    Table, Text, Tree,
};

use super::{spend, text_values::MAX_NUMBER};

/// One quota or several: a text, a list or a table.
pub(super) static QUOTAS: Shape = Named("quotas", &QUOTAS_CHOICES);

static QUOTAS_CHOICES: Shape = Either(&[AsText("100/minute"), List(&ONE_QUOTA), InTable(&QUOTA)]);

static ONE_QUOTA: Shape = Either(&[AsText("100/minute"), InTable(&QUOTA)]);

static QUOTA: Table = Table::new(
    "the quota",
    "A quota in fields; the text says the same in words.",
    &[
        &RATE,
        &NAME,
        &ALGORITHM,
        &BURST,
        &REFILL_EVERY,
        &QUEUE,
        &SLICES,
        &SOFT,
        &DEBT,
        &UNIT,
        &COUNTS,
        &ZONE,
        &STARTING_ON,
        &VARYING,
    ],
);

pub(in crate::rules) static RATE: Field<Text> =
    Field::text("rate", "100/minute", "The limit and its period.").required();

pub(in crate::rules) static NAME: Field<Text> = Field::text(
    "name",
    "day",
    "Its name among several. Default: made of its rate.",
);

static ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
];

pub(in crate::rules) static ALGORITHM: Field<Text> = Field::word(
    "algorithm",
    &ALGORITHMS,
    "How it counts. Default: token_bucket.",
);

pub(in crate::rules) static BURST: Field<Number> = Field::number(
    "burst",
    1..=MAX_NUMBER,
    "How much an idle key can take at once. Default: the limit.",
);

pub(in crate::rules) static REFILL_EVERY: Field<Text> = Field::text(
    "refill_every",
    "30s",
    "The step in which tokens come. Default: evenly.",
);

pub(in crate::rules) static QUEUE: Field<Number> = Field::number(
    "queue",
    0..=MAX_NUMBER,
    "How many may wait in a leaky bucket.",
);

pub(in crate::rules) static SLICES: Field<Number> = Field::number(
    "slices",
    1..=1_000,
    "Into how many slices a sliding window is cut. Default: 1.",
);

pub(in crate::rules) static SOFT: Field<Number> = Field::number(
    "soft",
    0..=1_000,
    "How many percent more pass than the limit says. Default: 0.",
);

pub(in crate::rules) static DEBT: Field<Number> = Field::number(
    "debt",
    0..=MAX_NUMBER,
    "How many units beyond its capacity a key may owe, for units that were used before they were charged. Default: 0, and with `counts` as many as it holds at once.",
);

pub(in crate::rules) static UNIT: Field<Text> = Field::text(
    "unit",
    "tokens",
    "The unit that clients see, as `qu` of `RateLimit-Policy`. Default: none, which clients read as requests.",
);

pub(in crate::rules) static COUNTS: Field<Tree> = Field::tree(
    "counts",
    spend::COUNTED,
    "The units that it counts: requests, or those that responses use, as the rule's `spend` reads them. Default: requests.",
);

pub(in crate::rules) static ZONE: Field<Text> = Field::text(
    "zone",
    "Europe/Berlin",
    "The time zone of a quota per day, week, month or year, or of the times in `varying`. Default: UTC.",
);

pub(in crate::rules) static STARTING_ON: Field<Number> = Field::number(
    "starting_on",
    1..=28,
    "The day on which months of a quota per month begin. Default: 1.",
);

pub(in crate::rules) static VARYING: Field<Text> = Field::text(
    "varying",
    "00:00=10/08:00=20",
    "Limits of a window by the time of day, in UTC or in `zone`; the largest is the limit of the rate. Default: one limit.",
);
