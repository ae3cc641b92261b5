//! Requests to rules, in words.

use std::net::SocketAddr;

use http::request::Parts;
use tower_ratelimit::{
    clock::Timestamp,
    rules::{Explanation, Format, RuleReason, Rules, RulesError},
};

/// Saturday, 2026-11-21T12:00Z.
pub(crate) const NOON: Timestamp = Timestamp::from_secs(1_795_262_400);

pub(crate) fn read(name: &str) -> Result<Rules, RulesError> {
    let path = format!("{}/tests/rules/files/{name}", env!("CARGO_MANIFEST_DIR"));
    Rules::from_path(path)
}

pub(crate) fn yaml(text: &str) -> Result<Rules, RulesError> {
    Rules::builder().parse(text, Format::Yaml)
}

/// A request from 203.0.113.7: `POST /api/login`, and headers.
pub(crate) fn request(line: &str, headers: &[(&str, &str)]) -> Parts {
    from("203.0.113.7", line, headers)
}

pub(crate) fn from(peer: &str, line: &str, headers: &[(&str, &str)]) -> Parts {
    let (method, uri) = line.split_once(' ').expect("a method and a path");
    let mut builder = http::Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4_000);
    let (mut parts, ()) = builder.body(()).expect("a request").into_parts();
    parts.extensions.insert(peer);
    parts
}

pub(crate) fn at(
    rules: &Rules,
    now: Timestamp,
    line: &str,
    headers: &[(&str, &str)],
) -> Explanation {
    rules.explain(&request(line, headers), now)
}

pub(crate) fn explain(rules: &Rules, line: &str, headers: &[(&str, &str)]) -> Explanation {
    at(rules, NOON, line, headers)
}

/// The names of the rules that apply, with spaces between.
pub(crate) fn applied(rules: &Rules, line: &str, headers: &[(&str, &str)]) -> String {
    explain(rules, line, headers)
        .applied()
        .collect::<Vec<_>>()
        .join(" ")
}

pub(crate) fn reason<'e>(explanation: &'e Explanation, rule: &str) -> &'e RuleReason {
    let rules = explanation.rules().iter();
    rules
        .clone()
        .find(|known| known.name() == rule)
        .expect("a rule")
        .reason()
}
