//! Matches of files.

use std::sync::Arc;

use http::{HeaderName, Method, header};
use tower_ratelimit_rulefile::{
    ProblemCode,
    document::Node,
    pattern::{Glob, PathPattern, expression_in_text},
    weekly_time_window::{Days, TimeWindow},
};

use super::context::Context;
use crate::{
    fields::{
        matching::{
            AUTHENTICATED, CLIENT, DAYS, FROM, HEADER, HOST, IGNORE_CASE, MCP, MCP_METHOD,
            MCP_TOOL, METHOD, NOT, PATH, QUERY, ROUTE, TIME, TO, ZONE,
        },
        parsers,
    },
    matcher::{Authenticator, HeaderCondition, Matcher, McpCondition, Pattern},
};

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
            if let Some(Ok(method)) = item.text().map(parsers::method) {
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
