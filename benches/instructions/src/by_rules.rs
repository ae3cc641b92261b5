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

fn rules(count: u16, found: impl Fn(u16) -> String) {
    let others = (1..count).map(|at| {
        let found = found(at);
        format!("  - {{name: r{at}, match: {{{found}}}, quota: 100/second}}\n")
    });
    let others: String = others.collect();
    let text = format!(
        "defaults: {{key: peer_ip, headers: []}}\nrules:\n{others}  - {{name: api, match: {{path: /}}, quota: 100000/second burst 1000}}\n"
    );
    let rules = Rules::builder().parse(text, Format::Yaml);
    crate::requests(crate::app().layer(RulesLayer::new(rules.expect("rules"))));
}
