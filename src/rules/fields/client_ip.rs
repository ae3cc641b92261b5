//! The fields of `client_ip`: how a client's address is found.

use http::HeaderName;
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Number, Parsed,
        Shape::{Many, Text as AsText},
        Table,
    },
};

use super::text_values;

pub(super) static CLIENT_IP: Table = Table::new(
    "client_ip",
    "How a client's address is found.",
    &[&TRUST, &HEADER, &IPV6_PREFIX],
);

pub(in crate::rules) static TRUST: Field<Parsed<IpNet>> = Field::parsed(
    "trust",
    Many(&AsText("10.0.0.0/8")),
    ProblemCode::R10,
    text_values::trusted_network,
    "Addresses and networks of your proxies; only what these write is believed. Default: none, and no header is read.",
);

pub(in crate::rules) static HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-forwarded-for"),
    ProblemCode::R01,
    text_values::header_name,
    "The one header that your proxies write: `x-forwarded-for`, `forwarded`, or one that holds a single address. Default: x-forwarded-for.",
);

pub(in crate::rules) static IPV6_PREFIX: Field<Number> = Field::number(
    "ipv6_prefix",
    1..=128,
    "How many bits of an IPv6 address make a key. Default: 64.",
);
