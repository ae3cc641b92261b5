//! The fields of rule files: a handle for each, which checks files, reads them, and writes the schema. Here those of a file
//! as a whole.

pub(super) mod key;
pub(super) mod matching;
pub(super) mod parsers;
pub(super) mod quota;
pub(super) mod rule;
pub(super) mod spend;

use http::HeaderName;
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Number, OneOf, Parsed,
        Shape::{List, Many, Map, NumberOfReader, Table as InTable, Text as AsText},
        Table, Tree, json_schema,
    },
};

use self::{
    key::KEY_SHAPE,
    rule::{HEADERS, ON_CHANGE, ON_MISSING_KEY},
};
use crate::cors_origins::CorsOrigin;

pub(crate) static FILE: Table = Table::new(
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

pub(crate) static VERSION: Field<Tree> = Field::tree(
    "version",
    NumberOfReader(1, 1),
    "Version of the format. Default: 1, the only one.",
);

pub(crate) static STORE: Field<Tree> = Field::table(
    "store",
    &STORE_TABLE,
    "Where counts are kept. An address of Redis and its password are never in this file: the application has them.",
);

pub(crate) static CLIENT_IP: Field<Tree> = Field::table(
    "client_ip",
    &CLIENT_IP_TABLE,
    "How a client's address is found. Default: the other end of the connection.",
);

pub(crate) static CORS_ORIGINS: Field<Parsed<CorsOrigin>> = Field::parsed(
    "cors_origins",
    Many(&AsText("https://app.example")),
    ProblemCode::R01,
    CorsOrigin::parse,
    "The origins of scripts in browsers, or `*` alone. Their preflight requests are not counted, and the gateway adds CORS fields to its denials. Default: none.",
);

pub(crate) static PRICES: Field<Tree> = Field::tree(
    "prices",
    Map(&InTable(&spend::PRICE)),
    "The prices of models, in dollars for a million tokens, by a name with at most one `*`. The first that fits counts; `*` has to be among them.",
);

pub(crate) static DEFAULTS: Field<Tree> = Field::table(
    "defaults",
    &DEFAULTS_TABLE,
    "What rules mean that do not say otherwise.",
);

pub(crate) static QUOTAS: Field<Tree> = Field::tree(
    "quotas",
    Map(&quota::QUOTAS),
    "Templates: quotas under a name that rules and tiers use. Each use counts for itself.",
);

pub(crate) static RULES: Field<Tree> = Field::tree(
    "rules",
    List(&InTable(&rule::RULE)),
    "The rules, looked at from the top. Every limit that matches applies; all are charged, or none.",
);

static STORE_TABLE: Table =
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

pub(crate) static MAX_KEYS: Field<Number> = Field::number(
    "max_keys",
    1..=1 << 32,
    "How many keys are remembered. Default: the application's.",
);

pub(crate) static ON_FAILURE: Field<OneOf<OnStoreFailure>> = Field::one_of(
    "on_failure",
    &FAILURES,
    "What happens while Redis does not answer: `local` counts in this process, `allow` lets pass, `deny` answers 503. Default: local.",
);

static CLIENT_IP_TABLE: Table = Table::new(
    "client_ip",
    "How a client's address is found.",
    &[&TRUST, &CLIENT_IP_HEADER, &IPV6_PREFIX],
);

pub(crate) static TRUST: Field<Parsed<IpNet>> = Field::parsed(
    "trust",
    Many(&AsText("10.0.0.0/8")),
    ProblemCode::R10,
    parsers::trusted_network,
    "Addresses and networks of your proxies; only what these write is believed. Default: none, and no header is read.",
);

pub(crate) static CLIENT_IP_HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-forwarded-for"),
    ProblemCode::R01,
    parsers::header_name,
    "The one header that your proxies write: `x-forwarded-for`, `forwarded`, or one that holds a single address. Default: x-forwarded-for.",
);

pub(crate) static IPV6_PREFIX: Field<Number> = Field::number(
    "ipv6_prefix",
    1..=128,
    "How many bits of an IPv6 address make a key. Default: 64.",
);

/// Values of rules that have none of their own.
static DEFAULTS_TABLE: Table = Table::new(
    "defaults",
    "What rules mean that do not say otherwise.",
    &[&DEFAULT_KEY, &ON_MISSING_KEY, &HEADERS, &ON_CHANGE],
);

pub(crate) static DEFAULT_KEY: Field<Tree> = Field::tree(
    "key",
    KEY_SHAPE,
    "The key of rules without one. Default: client_ip.",
);

/// The JSON Schema (2020-12) of rule files, for editors, which then complete and underline.
///
/// It has the fields and the kinds of their values. Names, patterns, quotas and times are checked when a file is read.
pub fn schema() -> String {
    json_schema("Rule files of tower-ratelimit", &FILE)
}
