//! The parts of requests that a rule of a file looks at.

use http::HeaderName;

use crate::rules::{
    need::RequestPart,
    tree::{Node, NodeEntry, NodeValue},
};

/// The parts, each once, and whether the rule's key is made of them. Words that are none are faults,
/// which are told elsewhere.
pub(super) fn needs(rule: &Node, default_key: Option<&Node>) -> Vec<(RequestPart, bool)> {
    let mut parts = Vec::new();
    if let Some(found) = rule.get("match") {
        of_match(found, &mut parts);
    }
    let of_tier = rule.get("tier").and_then(|tier| tier.get("header"));
    let of_cost = rule.get("cost").and_then(|cost| cost.get("header"));
    let names = [of_tier, of_cost.and_then(|header| header.get("name"))];
    let names = names.into_iter().flatten().filter_map(Node::text);
    parts.extend(names.filter_map(header));
    let mut keys = Vec::new();
    let limits = !matches!(
        rule.get("action").and_then(Node::text),
        Some("allow" | "deny")
    );
    if let Some(key) = rule.get("key").or(default_key).filter(|_| limits) {
        of_key(key, &mut keys);
    }
    let parts = parts.into_iter().map(|part| (part, false));
    let mut all: Vec<_> = parts
        .chain(keys.into_iter().map(|key| (key, true)))
        .collect();
    let mut seen = Vec::new();
    all.retain(|need| {
        let is_new = !seen.contains(need);
        seen.extend(is_new.then(|| need.clone()));
        is_new
    });
    all
}

fn header(name: &str) -> Option<RequestPart> {
    name.parse::<HeaderName>().ok().map(RequestPart::Header)
}

fn of_match(node: &Node, parts: &mut Vec<RequestPart>) {
    for NodeEntry { key, value, .. } in node.entries() {
        match key.as_str() {
            "header" => parts.extend(
                value
                    .entries()
                    .iter()
                    .filter_map(|entry| header(&entry.key)),
            ),
            "host" => parts.push(RequestPart::Host),
            "route" => parts.push(RequestPart::Route),
            "authenticated" => parts.push(RequestPart::Authenticated),
            "not" => of_match(value, parts),
            _ => {}
        }
    }
}

fn of_key(node: &Node, parts: &mut Vec<RequestPart>) {
    match &node.value {
        NodeValue::Scalar(word) => parts.extend(match word.text.as_str() {
            "bearer_token" => Some(RequestPart::BearerToken),
            "basic_user" => Some(RequestPart::BasicUser),
            "host" => Some(RequestPart::Host),
            "route" => Some(RequestPart::Route),
            _ => None,
        }),
        NodeValue::List(items) => items.iter().for_each(|item| of_key(item, parts)),
        NodeValue::Table(entries) => entries.iter().for_each(|entry| of_named(entry, parts)),
    }
}

fn of_named(entry: &NodeEntry, parts: &mut Vec<RequestPart>) {
    let name = entry.value.text();
    match entry.key.as_str() {
        "first_of" => of_key(&entry.value, parts),
        "header" | "secret_header" => parts.extend(name.and_then(header)),
        "cookie" => parts.extend(name.map(|name| RequestPart::Cookie(name.into()))),
        "custom" => parts.extend(name.map(|name| RequestPart::CustomKey(name.into()))),
        _ => {}
    }
}
