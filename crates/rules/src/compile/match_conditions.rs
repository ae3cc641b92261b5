//! The match of a rule: its fields, and what reads them.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderName, Method, header};
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    ProblemCode,
    document::Node,
    fields::{
        Boolean, Field, Parsed,
        Shape::{self, Boolean as AsBoolean, Either, Many, Map, Table as InTable, Text as AsText},
        Table, Tree,
    },
    pattern::{Glob, HostPattern, PathPattern, expression_in_text},
    weekly_time_window::{Days, TimeWindow, minute_of_day, zone},
};

use super::context::{Context, method};
use crate::request_matcher::{Authenticator, HeaderCondition, Matcher, McpCondition, Pattern};
use tower_ratelimit_client_ip::client_ip::unmapped;

pub(super) static MATCH: Field<Tree> = Field::table(
    "match",
    &MATCH_TABLE,
    "The requests that it is about; all fields have to fit. Default: every request.",
);

static MATCH_TABLE: Table = Table::new(
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

static METHOD: Field<Parsed<Method>> = Field::parsed(
    "method",
    Many(&AsText("POST")),
    ProblemCode::R01,
    method,
    "The method. HEAD counts as GET.",
);

static PATH: Field<Tree> = Field::tree(
    "path",
    Many(&AsText("/api/{id}/**")),
    "Patterns of the path: `{id}` is one segment, `*` any part of one, `**` at the end all that follows.",
);

static ROUTE: Field<Parsed<Box<str>>> = Field::parsed(
    "route",
    Many(&AsText("/users/{id}")),
    ProblemCode::R06,
    route,
    "The route that axum matched, as it was registered; clients cannot vary it.",
);

pub(super) static HOST: Field<Parsed<HostPattern>> = Field::parsed(
    "host",
    Many(&AsText("*.example.com")),
    ProblemCode::R01,
    HostPattern::new,
    "The host, without its port; `*.` in front stands for one label or more.",
);

pub(super) static HEADER: Field<Tree> = Field::tree(
    "header",
    Map(&Either(&[AsBoolean, Many(&AsText("*bot*"))])),
    "Patterns of headers with `*`; `true` is any value, `false` means absent. Of several lines one has to fit.",
);

pub(super) static QUERY: Field<Tree> = Field::tree(
    "query",
    Map(&Either(&[AsBoolean, Many(&AsText("full"))])),
    "The same of query parameters.",
);

pub(super) static MCP: Field<Tree> = Field::table(
    "mcp",
    &MCP_TABLE,
    "The call of the Model Context Protocol, by the body if it is read, otherwise by the fields `Mcp-Method` and `Mcp-Name`. A limit also fits a POST whose fields are missing or cannot be read.",
);

static MCP_TABLE: Table = Table::new(
    "mcp",
    "A call of the Model Context Protocol.",
    &[&MCP_METHOD, &MCP_TOOL],
);

static MCP_METHOD: Field<Tree> = Field::tree(
    "method",
    Many(&AsText("tools/*")),
    "Patterns of the method with `*`.",
);

static MCP_TOOL: Field<Tree> = Field::tree(
    "tool",
    Many(&AsText("search")),
    "Patterns of the name of the tool that `tools/call` calls, with `*`.",
);

pub(super) static CLIENT: Field<Parsed<IpNet>> = Field::parsed(
    "client",
    Many(&AsText("203.0.113.0/24")),
    ProblemCode::R10,
    network,
    "Addresses and networks of clients, found as `client_ip` says.",
);

pub(super) static AUTHENTICATED: Field<Boolean> = Field::boolean(
    "authenticated",
    "Whether the application takes the request for authenticated.",
);

static TIME: Field<Tree> = Field::tree("time", TIMES, "When the rule is in force.");

pub(super) static NOT: Field<Tree> =
    Field::table("not", &MATCH_TABLE, "A match that must not fit.");

static IGNORE_CASE: Field<Boolean> = Field::boolean(
    "ignore_case",
    "Whether case makes no difference in `path`, `header` and `query`. Default: false.",
);

pub(super) static TIMES: Shape = Many(&InTable(&TIME_TABLE));

static TIME_TABLE: Table = Table::new(
    "time",
    "A time of day, from `from` until just before `to`.",
    &[&FROM, &TO, &DAYS, &ZONE],
);

static FROM: Field<Parsed<u32>> = Field::parsed(
    "from",
    AsText("22:00"),
    ProblemCode::R08,
    minute_of_day,
    "Default: 00:00.",
);

static TO: Field<Parsed<u32>> = Field::parsed(
    "to",
    AsText("06:00"),
    ProblemCode::R08,
    minute_of_day,
    "Default: 24:00. Before `from` it is on the next day.",
);

static DAYS: Field<Parsed<Days>> = Field::parsed(
    "days",
    Many(&AsText("mon-fri")),
    ProblemCode::R08,
    Days::parse,
    "Days of the week on which it begins: mon, tue, wed, thu, fri, sat, sun, and ranges of these. Default: all.",
);

pub(super) static ZONE: Field<Parsed<i32>> = Field::parsed(
    "zone",
    AsText("+05:30"),
    ProblemCode::R08,
    zone,
    "UTC, or its distance from UTC; in a schedule that is `weighted` also a name such as Europe/Berlin. Default: UTC.",
);

fn route(text: &str) -> Result<Box<str>, String> {
    if text.starts_with('/') {
        Ok(text.into())
    } else {
        Err(format!("the route {text:?} does not begin with a slash"))
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let address = text.parse::<IpAddr>();
    let network = address.map(|ip| IpNet::from(ip.to_canonical()));
    let network = network.or_else(|_| text.parse().map(unmapped));
    network.map_err(|_| {
        format!(
            "{text:?} is neither an address such as \"203.0.113.7\" nor a network such as \
             \"203.0.113.0/24\""
        )
    })
}

/// The fields whose values are words without case, or begin with one (RFC 9110, 9111 and 9112).
static WITH_CASELESS_WORDS: [HeaderName; 15] = [
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::PRAGMA,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

impl<'c> Context<'c> {
    pub(super) fn matcher(&mut self, node: &Node) -> Matcher {
        let ignore_case = IGNORE_CASE.of(node).unwrap_or(false);
        for patterns in [PATH.of(node), ROUTE.node(node)].into_iter().flatten() {
            self.check_path(patterns);
        }
        let report = &mut self.report;
        let hosts = HOST.all(node, report).map(Into::into);
        let clients = CLIENT.all(node, report).map(Into::into);
        Matcher::new(Matcher {
            methods: self.methods(node),
            paths: self.paths(node, ignore_case),
            routes: self.routes(node),
            hosts,
            clients,
            headers: self.headers(node, ignore_case),
            query: self.query(node, ignore_case),
            mcp: MCP.of(node).map(|mcp| McpCondition {
                method: MCP_METHOD.of(mcp).map(|method| self.pattern(method, false)),
                tool: MCP_TOOL.of(mcp).map(|tool| self.pattern(tool, false)),
            }),
            authenticated: self.authenticated(node),
            times: TIME.of(node).map(|time| self.times(time, false)),
            not: NOT.of(node).map(|not| Box::new(self.matcher(not))),
            has_more_fields: false,
            needs_client: false,
            needs_call: false,
        })
    }

    fn methods(&mut self, node: &Node) -> Option<Box<[Method]>> {
        for item in METHOD.node(node)?.items() {
            if let Some(Ok(method)) = item.text().map(method) {
                self.check_method(&method, &item.span);
            }
        }
        METHOD.all(node, &mut self.report).map(Into::into)
    }

    fn paths(&mut self, node: &Node, ignore_case: bool) -> Option<Box<[PathPattern]>> {
        let items = PATH.of(node)?.items().iter();
        let patterns = items.filter_map(|item| {
            let pattern = PathPattern::new(item.text()?, ignore_case);
            self.value(ProblemCode::R06, &item.span, pattern)
        });
        Some(patterns.collect())
    }

    fn routes(&mut self, node: &Node) -> Option<Box<[Box<str>]>> {
        let routes = ROUTE.node(node)?;
        if !cfg!(feature = "axum") {
            let message = "`route` needs the feature `axum`";
            self.report(ProblemCode::R05, &routes.span, message);
        }
        ROUTE.all(node, &mut self.report).map(Into::into)
    }

    fn headers(&mut self, node: &Node, ignore_case: bool) -> Box<[HeaderCondition]> {
        let headers = HEADER.entries(node).iter().filter_map(|entry| {
            let name = self.header_name(&entry.key, &entry.key_span)?;
            let has_caseless_words = WITH_CASELESS_WORDS.contains(&name);
            let pattern = self.pattern(&entry.value, ignore_case);
            Some(HeaderCondition::new(name, pattern, has_caseless_words))
        });
        headers.collect()
    }

    fn query(&mut self, node: &Node, ignore_case: bool) -> Box<[(Box<str>, Pattern)]> {
        let parameters = QUERY.entries(node).iter().map(|entry| {
            let pattern = self.pattern(&entry.value, ignore_case);
            (entry.key.as_str().into(), pattern)
        });
        parameters.collect()
    }

    fn authenticated(&mut self, node: &Node) -> Option<(bool, Authenticator)> {
        let entry = AUTHENTICATED.entry(node)?;
        let wanted = AUTHENTICATED.of(node)?;
        let nobody = || Authenticator(Arc::new(|_| false));
        match &self.setup.authenticated {
            Some(authenticator) => Some((wanted, authenticator.clone())),
            None if self.setup.outside => Some((wanted, nobody())),
            None => {
                let message = "nothing says who is authenticated: register it in code, with \
                               `RulesBuilder::authenticated`";
                self.report(ProblemCode::R05, &entry.key_span, message);
                None
            }
        }
    }

    /// The pattern of a header or a query parameter. Without quotes `true` means that it is present, `false` that it is
    /// absent.
    fn pattern(&mut self, node: &Node, ignore_case: bool) -> Pattern {
        if let Some(present) = node.boolean() {
            return if present {
                Pattern::Present
            } else {
                Pattern::Absent
            };
        }
        let mut globs = Vec::new();
        for item in node.items() {
            if let Some(text) = item.unquoted_text().filter(|text| resembles_boolean(text)) {
                let message = format!(
                    "{text:?} without quotes can be meant as a text or as a truth value: put it in \
                     quotes, or say `true` or `false`"
                );
                self.report(ProblemCode::R01, &item.span, message);
            }
            if let Some(text) = item.text() {
                if let Some(message) = expression_in_text(text) {
                    self.report(ProblemCode::W29, &item.span, message);
                }
                globs.push(Glob::new(text, ignore_case));
            }
        }
        Pattern::OneOf(globs.into())
    }

    /// The times of a match or a schedule; civil ones are by the clocks of a named zone.
    pub(super) fn times(&mut self, node: &Node, is_civil: bool) -> Box<[TimeWindow]> {
        let items = node.items().iter();
        items.filter_map(|item| self.time(item, is_civil)).collect()
    }

    fn time(&mut self, node: &Node, is_civil: bool) -> Option<TimeWindow> {
        let report = &mut self.report;
        let from = FROM.or_default(node, 0, report);
        let to = TO.or_default(node, 24 * 60, report);
        let zone = if is_civil {
            Some(0)
        } else {
            ZONE.or_default(node, 0, report)
        };
        let days = DAYS.all(node, report).map_or(Days::ALL, |days| {
            days.into_iter().fold(Days::NONE, Days::and)
        });
        let window = TimeWindow::new(from?, to?, days, zone?);
        if window.is_none() {
            let message =
                "there is no time between `from` and `to`; for the whole day leave both out";
            self.report(ProblemCode::R08, &node.span, message);
        }
        window
    }
}

/// Whether YAML 1.1, or a reader, would take the text for a boolean or for no value.
fn resembles_boolean(text: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "null", "~", ""];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}
