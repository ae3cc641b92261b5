//! The fields of `match`: the requests that a rule is about.

use http::Method;
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Boolean, Field, Parsed,
        Shape::{Boolean as AsBoolean, Either, Many, Map, Text as AsText},
        Table, Tree,
    },
    pattern::HostPattern,
};

use super::{text_values, time_of_day::TIMES};

pub(super) static MATCH: Table = Table::new(
    "match",
    "The requests that a rule is about: all fields have to fit, and of a list one value.",
    &[
        &METHOD,
        &PATH,
        &ROUTE,
        &HOST,
        &HEADER,
        &QUERY,
        &CLIENT,
        &AUTHENTICATED,
        &TIME,
        &NOT,
        &IGNORE_CASE,
    ],
);

pub(in crate::rules) static METHOD: Field<Parsed<Method>> = Field::parsed(
    "method",
    Many(&AsText("POST")),
    ProblemCode::R01,
    text_values::method,
    "The method. HEAD counts as GET.",
);

pub(in crate::rules) static PATH: Field<Tree> = Field::tree(
    "path",
    Many(&AsText("/api/{id}/**")),
    "Patterns of the path: `{id}` is one segment, `*` any part of one, `**` at the end all that follows.",
);

pub(in crate::rules) static ROUTE: Field<Parsed<Box<str>>> = Field::parsed(
    "route",
    Many(&AsText("/users/{id}")),
    ProblemCode::R06,
    text_values::route,
    "The route that axum matched, as it was registered; clients cannot vary it.",
);

pub(in crate::rules) static HOST: Field<Parsed<HostPattern>> = Field::parsed(
    "host",
    Many(&AsText("*.example.com")),
    ProblemCode::R01,
    HostPattern::new,
    "The host, without its port; `*.` in front stands for one label or more.",
);

pub(in crate::rules) static HEADER: Field<Tree> = Field::tree(
    "header",
    Map(&Either(&[AsBoolean, Many(&AsText("*bot*"))])),
    "Patterns of headers with `*`; `true` is any value, `false` means absent. Of several lines one has to fit.",
);

pub(in crate::rules) static QUERY: Field<Tree> = Field::tree(
    "query",
    Map(&Either(&[AsBoolean, Many(&AsText("full"))])),
    "The same of query parameters.",
);

pub(in crate::rules) static CLIENT: Field<Parsed<IpNet>> = Field::parsed(
    "client",
    Many(&AsText("203.0.113.0/24")),
    ProblemCode::R10,
    text_values::network,
    "Addresses and networks of clients, found as `client_ip` says.",
);

pub(in crate::rules) static AUTHENTICATED: Field<Boolean> = Field::boolean(
    "authenticated",
    "Whether the application takes the request for authenticated.",
);

pub(in crate::rules) static TIME: Field<Tree> =
    Field::tree("time", TIMES, "When the rule is in force.");

pub(in crate::rules) static NOT: Field<Tree> =
    Field::table("not", &MATCH, "A match that must not fit.");

pub(in crate::rules) static IGNORE_CASE: Field<Boolean> = Field::boolean(
    "ignore_case",
    "Whether case makes no difference in `path`, `header` and `query`. Default: false.",
);
