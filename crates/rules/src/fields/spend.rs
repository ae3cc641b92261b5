//! The fields of `spend`, of `counts` and of `prices`: the units that responses use.

use tower_ratelimit_rulefile::fields::{
    Field, Number, OneOf,
    Shape::{self, Decimal, Either, Map, Number as AsNumber, Table as InTable, Words},
    Table, Text, Tree,
};

use crate::spend::UsagePlace;
use tower_ratelimit_budgets::{llm::Llm, prices::TokenRates};
use tower_ratelimit_core::quota::text::MAX_NUMBER;
use tower_ratelimit_layer::rate_limit::{Exhausted, Missing};

const MAX_WEIGHT: u64 = 1_000_000;

/// The most bytes of a request that may be read before it is decided.
const MAX_BODY: u64 = 1 << 20;

pub(super) static SPEND: Table = Table::new(
    "spend",
    "How the units that responses use are read and charged.",
    &[
        &READ,
        &RESERVE,
        &RESERVE_LEAST,
        &STEP,
        &EXHAUSTED,
        &MISSING,
        &BODY,
    ],
);

pub(crate) static READ: Field<Tree> = Field::tree(
    "read",
    Either(&[Words(&READ_WORDS), InTable(&PLACE)]),
    "Where a response reports its usage: the format of a provider, `auto` for any of them, or a table; `bytes` for those of the bodies.",
)
.required();

pub(crate) static READ_WORDS: [(&str, UsagePlace); 6] = [
    ("auto", UsagePlace::Format(Llm::any())),
    ("bytes", UsagePlace::Bytes),
    ("openai", UsagePlace::Format(Llm::openai())),
    ("responses", UsagePlace::Format(Llm::responses())),
    ("anthropic", UsagePlace::Format(Llm::anthropic())),
    ("gemini", UsagePlace::Format(Llm::gemini())),
];

static PLACE: Table = Table::new(
    "spend.read",
    "A place of a response where one number stands: the units that it used.",
    &[&JSON, &HEADER, &TRAILER],
)
.one_field();

pub(crate) static JSON: Field<Text> = Field::text(
    "json",
    "/usage/total_tokens",
    "A JSON pointer into the body, or into each event of a stream: the largest number counts.",
);

pub(crate) static HEADER: Field<Text> =
    Field::text("header", "x-cost", "A header of the response.");

pub(crate) static TRAILER: Field<Text> =
    Field::text("trailer", "x-cost", "A trailer of the response.");

pub(crate) static RESERVE: Field<Number> = Field::number(
    "reserve",
    0..=MAX_NUMBER,
    "The most tokens that a request reserves when it arrives; for `read: bytes` those of a body of unknown length. Default: 2048; for bytes 65536.",
);

pub(crate) static RESERVE_LEAST: Field<Number> = Field::number(
    "reserve_least",
    0..=MAX_NUMBER,
    "The fewest tokens that a request reserves, whatever it declares; at most `reserve`. Default: 256.",
);

pub(crate) static STEP: Field<Number> = Field::number(
    "step",
    1..=MAX_NUMBER,
    "The tokens of a further charge while the response passes. Default: 256; for bytes 65536.",
);

static EXHAUSTIONS: [(&str, Exhausted); 2] =
    [("finish", Exhausted::Finish), ("end", Exhausted::End)];

pub(crate) static EXHAUSTED: Field<OneOf<Exhausted>> = Field::one_of(
    "exhausted",
    &EXHAUSTIONS,
    "A response for which nothing is left: `finish` continues it, and the key owes; `end` ends it with an error. Default: finish.",
);

static TREATMENTS: [(&str, Missing); 3] = [
    ("estimate", Missing::Estimate),
    ("keep", Missing::Keep),
    ("give_back", Missing::GiveBack),
];

pub(crate) static MISSING: Field<OneOf<Missing>> = Field::one_of(
    "missing",
    &TREATMENTS,
    "The charge for a response without a report: the estimate of its text, all that is charged, or nothing. Default: estimate.",
);

pub(crate) static BODY: Field<Number> = Field::number(
    "body",
    0..=MAX_BODY,
    "The most bytes of a JSON request that are read for its reservation; 0 reads none. Default: 65536.",
);

/// The units that a quota counts: a word, or weights.
pub(super) static COUNTED: Shape = Either(&[Words(&COUNTS_WORDS), InTable(&WEIGHTS)]);

/// The words, with what each counts of a token; `None` for those that count something else.
pub(crate) static COUNTS_WORDS: [(&str, Option<TokenRates>); 10] = [
    ("requests", None),
    ("tokens", Some(TokenRates::of(1, 1))),
    ("uncached_tokens", Some(UNCACHED)),
    ("input_tokens", Some(TokenRates::of(1, 0))),
    ("output_tokens", Some(TokenRates::of(0, 1))),
    ("micro_usd", None),
    // The number at a place of the response that the rule names.
    ("units", Some(TokenRates::of(1, 1))),
    ("bytes", Some(TokenRates::of(1, 1))),
    ("request_bytes", Some(TokenRates::of(1, 0))),
    ("response_bytes", Some(TokenRates::of(0, 1))),
];

const UNCACHED: TokenRates = TokenRates {
    cached_input: 0,
    ..TokenRates::of(1, 1)
};

static WEIGHTS: Table = Table::new(
    "counts",
    "The units of a token by its kind.",
    &[&INPUT, &CACHED, &CACHE_WRITE, &OUTPUT, &MODEL],
);

pub(crate) static INPUT: Field<Number> = Field::number(
    "input",
    0..=MAX_WEIGHT,
    "The units of a token of input. Default: 0.",
);

pub(crate) static CACHED: Field<Number> = Field::number(
    "cached",
    0..=MAX_WEIGHT,
    "The units of a token of input that was read from a cache. Default: those of input.",
);

pub(crate) static CACHE_WRITE: Field<Number> = Field::number(
    "cache_write",
    0..=MAX_WEIGHT,
    "The units of a token of input that was written to a cache. Default: those of input.",
);

pub(crate) static OUTPUT: Field<Number> = Field::number(
    "output",
    0..=MAX_WEIGHT,
    "The units of a token of output. Default: 0.",
);

pub(crate) static MODEL: Field<Tree> = Field::tree(
    "model",
    Map(&AsNumber(0, MAX_WEIGHT)),
    "Factors of models, by a name with at most one `*`. The first that fits counts. Default: 1.",
);

/// The prices of a model, in dollars for a million tokens.
pub(super) static PRICE: Table = Table::new(
    "the price",
    "The prices of a model, in dollars for a million tokens.",
    &[
        &INPUT_PRICE,
        &CACHED_PRICE,
        &CACHE_WRITE_PRICE,
        &OUTPUT_PRICE,
    ],
);

pub(crate) static INPUT_PRICE: Field<Tree> =
    Field::tree("input", Decimal, "The price of input.").required();

pub(crate) static CACHED_PRICE: Field<Tree> = Field::tree(
    "cached",
    Decimal,
    "The price of input that was read from a cache. Default: that of input.",
);

pub(crate) static CACHE_WRITE_PRICE: Field<Tree> = Field::tree(
    "cache_write",
    Decimal,
    "The price of input that was written to a cache. Default: that of input.",
);

pub(crate) static OUTPUT_PRICE: Field<Tree> = Field::tree(
    "output",
    Decimal,
    "The price of output. Default: 0, as for embeddings.",
);
