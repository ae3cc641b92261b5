//! The fields of a file, and the schema of files.

use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Parsed,
        Shape::{List, Many, Map, NumberOfReader, Table as InTable, Text as AsText},
        Table, Tree, json_schema,
    },
};

use super::{client_ip, quota, rule, spend, store_defaults_tier_schedule};
use crate::rules::cors::CorsOrigin;

/// A file.
pub(in crate::rules) static FILE: Table = Table::new(
    "the file",
    "Rate limits of tower-ratelimit.",
    &[
        &VERSION,
        &STORE,
        &CLIENT_IP,
        &CORS_ORIGINS,
        &PRICES,
        &DEFAULTS,
        &QUOTAS,
        &RULES,
    ],
)
.foreign(
    &["domain", "descriptors"],
    "a field of Envoy's rate limit service: `tower-ratelimit serve` and `envoy` take such files",
);

pub(in crate::rules) static VERSION: Field<Tree> = Field::tree(
    "version",
    NumberOfReader(1, 1),
    "Version of the format. Default: 1, the only one.",
);

pub(in crate::rules) static STORE: Field<Tree> = Field::table(
    "store",
    &store_defaults_tier_schedule::STORE,
    "Where counts are kept. An address of Redis and its password are never in this file: the application has them.",
);

pub(in crate::rules) static CLIENT_IP: Field<Tree> = Field::table(
    "client_ip",
    &client_ip::CLIENT_IP,
    "How a client's address is found. Default: the other end of the connection.",
);

pub(in crate::rules) static CORS_ORIGINS: Field<Parsed<CorsOrigin>> = Field::parsed(
    "cors_origins",
    Many(&AsText("https://app.example")),
    ProblemCode::R01,
    CorsOrigin::parse,
    "The origins of scripts in browsers, or `*` alone. Their preflight requests are not counted, and the gateway adds CORS fields to its denials. Default: none.",
);

pub(in crate::rules) static PRICES: Field<Tree> = Field::tree(
    "prices",
    Map(&InTable(&spend::PRICE)),
    "The prices of models, in dollars for a million tokens, by a name with at most one `*`. The first that fits counts; `*` has to be among them.",
);

pub(in crate::rules) static DEFAULTS: Field<Tree> = Field::table(
    "defaults",
    &store_defaults_tier_schedule::DEFAULTS,
    "What rules mean that do not say otherwise.",
);

pub(in crate::rules) static QUOTAS: Field<Tree> = Field::tree(
    "quotas",
    Map(&quota::QUOTAS),
    "Templates: quotas under a name that rules and tiers use. Each use counts for itself.",
);

pub(in crate::rules) static RULES: Field<Tree> = Field::tree(
    "rules",
    List(&InTable(&rule::RULE)),
    "The rules, looked at from the top. Every limit that matches applies; all are charged, or none.",
);

/// The JSON Schema (2020-12) of rule files, for editors, which then complete and underline.
///
/// It has the fields and the kinds of their values. Names, patterns, quotas and times are checked when a file is read.
pub fn schema() -> String {
    json_schema("Rule files of tower-ratelimit", &FILE)
}
