//! Matches of files.

use std::net::IpAddr;

use http::Method;
use ipnet::IpNet;

use super::context::Context;
use crate::key::unmapped;
use crate::rules::{
    matcher::{Authenticator, Matcher, Pattern},
    pattern::{Glob, HostPattern, PathPattern},
    problem::ProblemCode,
    time::{Days, TimeWindow, minute_of_day, zone},
    tree::Node,
};

impl<'c> Context<'c> {
    pub(super) fn matcher(&mut self, node: &'c Node) -> Matcher {
        let ignore_case = node
            .get("ignore_case")
            .and_then(Node::truth)
            .unwrap_or(false);
        let path = |text: &str| PathPattern::new(text, ignore_case);
        for field in ["path", "route"] {
            if let Some(patterns) = node.get(field) {
                self.check_colons(patterns);
            }
        }
        Matcher::new(Matcher {
            methods: self.methods(node),
            paths: self.list(node, "path", ProblemCode::R06, path),
            routes: self.routes(node),
            hosts: self.list(node, "host", ProblemCode::R01, HostPattern::new),
            clients: self.list(node, "client", ProblemCode::R10, network),
            headers: self.headers(node, ignore_case),
            query: self.query(node, ignore_case),
            authenticated: self.authenticated(node),
            times: node.get("time").map(|time| self.times(time)),
            not: node.get("not").map(|not| Box::new(self.matcher(not))),
            says_more: false,
            asks_the_client: false,
        })
    }

    fn list<T>(
        &mut self,
        node: &'c Node,
        field: &str,
        code: ProblemCode,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Box<[T]>> {
        let values = node.get(field)?;
        Some(self.values(code, values, read).into())
    }

    fn methods(&mut self, node: &'c Node) -> Option<Box<[Method]>> {
        let said = node.get("method")?;
        for item in said.items() {
            if let Some(Ok(method)) = item.text().map(method) {
                self.check_method(&method, &item.spot);
            }
        }
        self.list(node, "method", ProblemCode::R01, method)
    }

    fn routes(&mut self, node: &'c Node) -> Option<Box<[Box<str>]>> {
        let routes = node.get("route")?;
        if !cfg!(feature = "axum") {
            self.fault(
                ProblemCode::R05,
                &routes.spot,
                "`route` needs the feature `axum`",
            );
        }
        self.list(node, "route", ProblemCode::R06, |route| {
            match route.starts_with('/') {
                true => Ok(route.into()),
                false => Err(format!("the route {route:?} does not begin with a slash")),
            }
        })
    }

    fn headers(&mut self, node: &'c Node, ignore_case: bool) -> Box<[(http::HeaderName, Pattern)]> {
        let entries = node.get("header").map_or(&[][..], Node::entries);
        let headers = entries.iter().filter_map(|entry| {
            let name = self.header_name(&entry.key, &entry.key_spot)?;
            Some((name, self.pattern(&entry.value, ignore_case)))
        });
        headers.collect()
    }

    fn query(&mut self, node: &'c Node, ignore_case: bool) -> Box<[(Box<str>, Pattern)]> {
        let entries = node.get("query").map_or(&[][..], Node::entries);
        let mut named = |entry: &crate::rules::tree::NodeEntry| {
            (
                entry.key.as_str().into(),
                self.pattern(&entry.value, ignore_case),
            )
        };
        entries.iter().map(&mut named).collect()
    }

    fn authenticated(&mut self, node: &'c Node) -> Option<(bool, Authenticator)> {
        let entry = node.entry("authenticated")?;
        let wanted = entry.value.truth()?;
        let nobody = || Authenticator(std::sync::Arc::new(|_| false));
        match &self.setup.authenticated {
            Some(told) => Some((wanted, told.clone())),
            None if self.setup.outside => Some((wanted, nobody())),
            None => {
                let message = "nothing says who is authenticated: register it in code, with \
                               `RulesBuilder::authenticated`";
                self.fault(ProblemCode::R05, &entry.key_spot, message);
                None
            }
        }
    }

    /// The pattern of a header or a query parameter: `true` and `false` without quotes say whether it
    /// is there, and are no patterns.
    fn pattern(&mut self, node: &Node, ignore_case: bool) -> Pattern {
        if let Some(there) = node.truth() {
            return if there {
                Pattern::Present
            } else {
                Pattern::Absent
            };
        }
        let mut globs = Vec::new();
        for item in node.items() {
            if let Some(text) = item.bare_text().filter(|text| is_like_a_truth(text)) {
                let message = format!(
                    "{text:?} without quotes can be meant as a text or as a truth value: put it in \
                     quotes, or say `true` or `false`"
                );
                self.fault(ProblemCode::R01, &item.spot, message);
            }
            if let Some(text) = item.text() {
                globs.push(Glob::new(text, ignore_case));
            }
        }
        Pattern::OneOf(globs.into())
    }

    pub(super) fn times(&mut self, node: &'c Node) -> Box<[TimeWindow]> {
        let items = node.items().iter();
        items.filter_map(|item| self.time(item)).collect()
    }

    fn time(&mut self, node: &'c Node) -> Option<TimeWindow> {
        let from = node
            .get("from")
            .map(|from| self.value(ProblemCode::R08, from, minute_of_day));
        let to = node
            .get("to")
            .map(|to| self.value(ProblemCode::R08, to, minute_of_day));
        let zone = node
            .get("zone")
            .map(|text| self.value(ProblemCode::R08, text, zone));
        let days = match node.get("days") {
            Some(days) => {
                let days = self.values(ProblemCode::R08, days, Days::parse);
                days.into_iter().fold(Days::NONE, Days::and)
            }
            None => Days::ALL,
        };
        let (from, to) = (from.unwrap_or(Some(0))?, to.unwrap_or(Some(24 * 60))?);
        let window = TimeWindow::new(from, to, days, zone.unwrap_or(Some(0))?);
        if window.is_none() {
            let message =
                "there is no time between `from` and `to`; for the whole day leave both out";
            self.fault(ProblemCode::R08, &node.spot, message);
        }
        window
    }
}

fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(upper.as_bytes()) {
        Ok(Method::HEAD) => Err("HEAD counts as GET: say GET".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{text:?} is no method")),
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let address = text
        .parse::<IpAddr>()
        .map(|ip| IpNet::from(ip.to_canonical()));
    address
        .or_else(|_| text.parse().map(unmapped))
        .map_err(|_| {
            format!(
                "{text:?} is neither an address such as \"203.0.113.7\" nor a network such as \
             \"203.0.113.0/24\""
            )
        })
}

/// The words that YAML 1.1 and people take for a truth value, and nothing at all.
fn is_like_a_truth(text: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "null", "~", ""];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}
