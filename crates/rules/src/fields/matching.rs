//! The fields of `match`: the requests that a rule is about.

use http::Method;
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Boolean, Field, Parsed,
        Shape::{self, Boolean as AsBoolean, Either, Many, Map, Table as InTable, Text as AsText},
        Table, Tree,
    },
    pattern::HostPattern,
    weekly_time_window::{Days, minute_of_day, zone},
};

use super::parsers;

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
        &MCP,
        &CLIENT,
        &AUTHENTICATED,
        &TIME,
        &NOT,
        &IGNORE_CASE,
    ],
);

pub(crate) static METHOD: Field<Parsed<Method>> = Field::parsed(
    "method",
    Many(&AsText("POST")),
    ProblemCode::R01,
    parsers::method,
    "The method. HEAD counts as GET.",
);

pub(crate) static PATH: Field<Tree> = Field::tree(
    "path",
    Many(&AsText("/api/{id}/**")),
    "Patterns of the path: `{id}` is one segment, `*` any part of one, `**` at the end all that follows.",
);

pub(crate) static ROUTE: Field<Parsed<Box<str>>> = Field::parsed(
    "route",
    Many(&AsText("/users/{id}")),
    ProblemCode::R06,
    parsers::route,
    "The route that axum matched, as it was registered; clients cannot vary it.",
);

pub(crate) static HOST: Field<Parsed<HostPattern>> = Field::parsed(
    "host",
    Many(&AsText("*.example.com")),
    ProblemCode::R01,
    HostPattern::new,
    "The host, without its port; `*.` in front stands for one label or more.",
);

pub(crate) static HEADER: Field<Tree> = Field::tree(
    "header",
    Map(&Either(&[AsBoolean, Many(&AsText("*bot*"))])),
    "Patterns of headers with `*`; `true` is any value, `false` means absent. Of several lines one has to fit.",
);

pub(crate) static QUERY: Field<Tree> = Field::tree(
    "query",
    Map(&Either(&[AsBoolean, Many(&AsText("full"))])),
    "The same of query parameters.",
);

pub(crate) static MCP: Field<Tree> = Field::table(
    "mcp",
    &MCP_TABLE,
    "The call of the Model Context Protocol, by the body if it is read, otherwise by the fields `Mcp-Method` and `Mcp-Name`. A limit also fits a POST whose fields are missing or cannot be read.",
);

static MCP_TABLE: Table = Table::new(
    "mcp",
    "A call of the Model Context Protocol.",
    &[&MCP_METHOD, &MCP_TOOL],
);

pub(crate) static MCP_METHOD: Field<Tree> = Field::tree(
    "method",
    Many(&AsText("tools/*")),
    "Patterns of the method with `*`.",
);

pub(crate) static MCP_TOOL: Field<Tree> = Field::tree(
    "tool",
    Many(&AsText("search")),
    "Patterns of the name of the tool that `tools/call` calls, with `*`.",
);

pub(crate) static CLIENT: Field<Parsed<IpNet>> = Field::parsed(
    "client",
    Many(&AsText("203.0.113.0/24")),
    ProblemCode::R10,
    parsers::network,
    "Addresses and networks of clients, found as `client_ip` says.",
);

pub(crate) static AUTHENTICATED: Field<Boolean> = Field::boolean(
    "authenticated",
    "Whether the application takes the request for authenticated.",
);

pub(crate) static TIME: Field<Tree> = Field::tree("time", TIMES, "When the rule is in force.");

pub(crate) static NOT: Field<Tree> = Field::table("not", &MATCH, "A match that must not fit.");

pub(crate) static IGNORE_CASE: Field<Boolean> = Field::boolean(
    "ignore_case",
    "Whether case makes no difference in `path`, `header` and `query`. Default: false.",
);

pub(super) static TIMES: Shape = Many(&InTable(&TIME_TABLE));

static TIME_TABLE: Table = Table::new(
    "time",
    "A time of day, from `from` until just before `to`.",
    &[&FROM, &TO, &DAYS, &ZONE],
);

pub(crate) static FROM: Field<Parsed<u32>> = Field::parsed(
    "from",
    AsText("22:00"),
    ProblemCode::R08,
    minute_of_day,
    "Default: 00:00.",
);

pub(crate) static TO: Field<Parsed<u32>> = Field::parsed(
    "to",
    AsText("06:00"),
    ProblemCode::R08,
    minute_of_day,
    "Default: 24:00. Before `from` it is on the next day.",
);

pub(crate) static DAYS: Field<Parsed<Days>> = Field::parsed(
    "days",
    Many(&AsText("mon-fri")),
    ProblemCode::R08,
    Days::parse,
    "Days of the week on which it begins: mon, tue, wed, thu, fri, sat, sun, and ranges of these. Default: all.",
);

pub(crate) static ZONE: Field<Parsed<i32>> = Field::parsed(
    "zone",
    AsText("+05:30"),
    ProblemCode::R08,
    zone,
    "UTC, or its distance from UTC; in a schedule that is `weighted` also a name such as Europe/Berlin. Default: UTC.",
);
