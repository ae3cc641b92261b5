//! Warnings about values that are probably not meant: each is read as it stands.

use http::Method;

use super::context::Context;
use crate::rules::{
    allowance::{Allowance, QuotaSet},
    problem::{Problem, ProblemCode, Spot},
    report::nearest,
    rule::{Rule, RuleAction},
    tree::{Node, NodeEntry},
};

/// The methods of the IANA registry.
const REGISTERED: [&str; 40] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

impl Context<'_> {
    /// Warns of segments such as `:id`, the parameters of other routers.
    pub(super) fn check_colons(&mut self, node: &Node) {
        for item in node.items() {
            let segments = item.text().unwrap_or_default().split('/');
            for segment in segments.filter(|segment| segment.starts_with(':')) {
                let message = format!(
                    "the segment {segment:?} is compared as it stands; a parameter is \"{{{}}}\"",
                    &segment[1..]
                );
                self.warn(ProblemCode::W26, &item.spot, message);
            }
        }
    }

    /// Warns of methods that are probably misspelt.
    pub(super) fn check_method(&mut self, method: &Method, spot: &Spot) {
        if REGISTERED.contains(&method.as_str()) {
            return;
        }
        let message = format!("{:?} is no registered method", method.as_str());
        let suggestion = nearest(method.as_str(), REGISTERED.into_iter());
        let problem = Problem::new(ProblemCode::W27, spot, message).suggest(suggestion);
        self.report.add(problem);
    }

    /// Warns of a name that reads as if there were none.
    pub(super) fn check_null(&mut self, name: &str, is_quoted: bool, spot: &Spot) {
        if !is_quoted && matches!(name, "~" | "null" | "Null" | "NULL") {
            let message = format!(
                "{name:?} without quotes is a name here, where YAML has no value: put it in quotes, \
                 or choose another"
            );
            self.warn(ProblemCode::W29, spot, message);
        }
    }

    /// Warns of keys that read as if there were none.
    pub(super) fn check_null_keys(&mut self, entries: &[NodeEntry]) {
        for entry in entries {
            self.check_null(&entry.key, entry.key_quoted, &entry.key_spot);
        }
    }

    fn warn(&mut self, code: ProblemCode, spot: &Spot, message: String) {
        self.report.add(Problem::new(code, spot, message));
    }
}

/// Warns of what a rule says in vain.
pub(super) fn warn(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let negated = node.get("match").and_then(|found| found.entry("not"));
    if let Some(not) = negated
        && not.value.entries().is_empty()
    {
        let message = format!(
            "`not` without fields matches every request, so that {:?} matches none; leave it out",
            rule.name
        );
        context.warn(ProblemCode::W29, &not.key_spot, message);
    }
    if rule.action == RuleAction::Limit {
        never_admitted(rule, node, context);
    }
}

/// Warns of costs that no set of the rule's quotas ever admits.
fn never_admitted(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let Some(largest) = largest_cost(&rule.allowance) else {
        return;
    };
    let Some(said) = node.get("cost") else { return };
    let methods = said.get("method").map_or(&[][..], Node::entries);
    let of_header = said.get("header").and_then(|header| header.get("max"));
    let all = said.number().map(|_| said);
    let nodes = all.into_iter().chain(said.get("default")).chain(of_header);
    for node in nodes.chain(methods.iter().map(|entry| &entry.value)) {
        if let Some(cost) = node.number().filter(|cost| *cost > largest) {
            let message = format!(
                "a request that costs {cost} never passes: the quota of {:?} admits {largest} at once",
                rule.name
            );
            context.warn(ProblemCode::W28, &node.spot, message);
        }
    }
}

/// The most that a single request may cost, or `None` for anything.
fn largest_cost(allowance: &Allowance) -> Option<u64> {
    let of_set = |set: &QuotaSet| {
        let quotas = set.quotas().map(|quota| quota.quota());
        let most = quotas.map(|quota| quota.capacity().saturating_add(quota.extra()));
        most.min().unwrap_or(u64::MAX)
    };
    if allowance.may_be_unlimited() {
        return None;
    }
    allowance.sets().into_iter().map(of_set).max()
}
