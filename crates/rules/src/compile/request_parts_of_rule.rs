//! The parts of requests that a rule reads.

use http::HeaderName;
use tower_ratelimit_rulefile::document::{Node, NodeEntry, NodeValue};

use crate::{
    cost,
    fields::{
        key::{COOKIE, CUSTOM, FIRST_OF, HEADER, SECRET_HEADER},
        matching,
        rule::{ACTION, COST, MATCH, PRIORITY, TIER, TIER_HEADER},
    },
    priority,
    rule::{RequestPart, RuleAction},
};

/// The parts that a rule with this key reads, each once, and whether the key is made of the part.
pub(super) fn request_parts(rule: &Node, key: Option<&Node>) -> Vec<(RequestPart, bool)> {
    let mut parts = Vec::new();
    if let Some(found) = MATCH.of(rule) {
        of_match(found, &mut parts);
    }
    let tier = TIER.of(rule).and_then(|tier| TIER_HEADER.node(tier));
    let cost = COST.of(rule).and_then(|cost| cost::HEADER.of(cost));
    let cost = cost.and_then(|header| cost::HEADER_NAME.node(header));
    let class = PRIORITY.of(rule).and_then(|of| priority::HEADER.node(of));
    let names = [tier, cost, class]
        .into_iter()
        .flatten()
        .filter_map(Node::text);
    parts.extend(names.filter_map(header));
    let mut key_parts = Vec::new();
    if ACTION.of(rule).unwrap_or(RuleAction::Limit).limits()
        && let Some(key) = key
    {
        of_key(key, &mut key_parts);
    }
    let mut all = Vec::new();
    let parts = parts.into_iter().map(|part| (part, false));
    for part in parts.chain(key_parts.into_iter().map(|part| (part, true))) {
        if !all.contains(&part) {
            all.push(part);
        }
    }
    all
}

const CALL_OF_MCP: [&str; 2] = ["mcp-method", "mcp-name"];

/// The header of this name. A name that is none is reported elsewhere.
fn header(name: &str) -> Option<RequestPart> {
    name.parse::<HeaderName>().ok().map(RequestPart::Header)
}

fn of_match(node: &Node, parts: &mut Vec<RequestPart>) {
    for entry in node.entries() {
        let value = &entry.value;
        if matching::HEADER.is(entry) {
            let names = value.entries().iter().map(|entry| entry.key.as_str());
            parts.extend(names.filter_map(header));
        } else if matching::MCP.is(entry) {
            parts.extend(CALL_OF_MCP.into_iter().filter_map(header));
        } else if matching::HOST.is(entry) {
            parts.push(RequestPart::Host);
        } else if matching::ROUTE.is(entry) {
            parts.push(RequestPart::Route);
        } else if matching::AUTHENTICATED.is(entry) {
            parts.push(RequestPart::Authenticated);
        } else if matching::NOT.is(entry) {
            of_match(value, parts);
        }
    }
}

fn of_key(node: &Node, parts: &mut Vec<RequestPart>) {
    match &node.value {
        NodeValue::Scalar(scalar) => match &*scalar.text {
            "bearer_token" => parts.push(RequestPart::BearerToken),
            "basic_user" => parts.push(RequestPart::BasicUser),
            "host" => parts.push(RequestPart::Host),
            "route" => parts.push(RequestPart::Route),
            "mcp_tool" => parts.extend(CALL_OF_MCP.into_iter().filter_map(header)),
            _ => {}
        },
        NodeValue::List(items) => items.iter().for_each(|item| of_key(item, parts)),
        NodeValue::Table(entries) => entries.iter().for_each(|entry| of_table(entry, parts)),
    }
}

fn of_table(entry: &NodeEntry, parts: &mut Vec<RequestPart>) {
    let name = entry.value.text();
    if FIRST_OF.is(entry) {
        of_key(&entry.value, parts);
    } else if HEADER.is(entry) || SECRET_HEADER.is(entry) {
        parts.extend(name.and_then(header));
    } else if COOKIE.is(entry) {
        parts.extend(name.map(|name| RequestPart::Cookie(name.into())));
    } else if CUSTOM.is(entry) {
        parts.extend(name.map(|name| RequestPart::CustomKey(name.into())));
    }
}
