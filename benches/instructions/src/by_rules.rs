//! Requests that are limited by rules, without headers.

use tower_ratelimit::rules::{Format, Rules, RulesLayer};

/// Rules about a path each. The requests meet the last one.
pub(crate) fn paths(count: u16) {
    rules(count, |at| format!("path: \"/r{at}/**\""));
}

/// Rules about a header. Each of them is checked.
pub(crate) fn headers(count: u16) {
    rules(count, |at| format!("header: {{x-tenant: t{at}}}"));
}

/// Three rules that a request meets, each with a key of its own.
pub(crate) fn together() {
    let limits = [
        ("address", "peer_ip"),
        ("method", "method"),
        ("all", "global"),
    ];
    let rules = limits.map(|(name, key)| {
        format!("  - {{name: {name}, key: {key}, quota: 100000/second burst 1000}}\n")
    });
    limited_by(&format!(
        "defaults: {{headers: []}}\nrules:\n{}",
        rules.concat()
    ));
}

/// A layer that can hold permits, with one rule that has a quota.
pub(crate) fn holding() {
    holding_by("");
}

/// A layer whose rule also limits the requests in flight.
pub(crate) fn in_flight() {
    holding_by(", in_flight: 10");
}

fn holding_by(field: &str) {
    let rules = format!(
        "defaults: {{headers: []}}\nrules: [{{name: api, key: peer_ip, quota: 100000/second burst 1000{field}}}]\n"
    );
    let rules = Rules::builder()
        .accept_in_flight(true)
        .parse(&rules, Format::Yaml);
    let layer = RulesLayer::new(rules.expect("rules"));
    crate::requests(crate::app().layer(layer.holding()));
}

fn rules(count: u16, found: impl Fn(u16) -> String) {
    let others = (1..count).map(|at| {
        let found = found(at);
        format!("  - {{name: r{at}, match: {{{found}}}, quota: 100/second}}\n")
    });
    let others: String = others.collect();
    limited_by(&format!(
        "defaults: {{key: peer_ip, headers: []}}\nrules:\n{others}  - {{name: api, match: {{path: /}}, quota: 100000/second burst 1000}}\n"
    ));
}

fn limited_by(text: &str) {
    let rules = Rules::builder().parse(text, Format::Yaml);
    crate::requests(crate::app().layer(RulesLayer::new(rules.expect("rules"))));
}
