//! Warnings about values that are valid, and probably mistakes.

use http::Method;
use tower_ratelimit_rulefile::{
    Problem, ProblemCode, Span,
    document::{Node, NodeEntry},
    nearest,
    pattern::expression_in_path,
};

use super::context::Context;
use crate::{
    cost,
    fields::{
        matching::NOT,
        rule::{COST, MATCH},
    },
    rule::Rule,
    rule_quotas::QuotaSet,
};

/// The methods of the IANA registry.
const REGISTERED: &str = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE \
    MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI \
    PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE \
    UPDATEREDIRECTREF VERSION-CONTROL";

impl Context<'_> {
    /// Warns of segments such as `:id`, the parameters of other routers, and of regular expressions.
    pub(super) fn check_path(&mut self, node: &Node) {
        for item in node.items() {
            let text = item.text().unwrap_or_default();
            if let Some(message) = expression_in_path(text) {
                self.report(ProblemCode::W29, &item.span, message);
            }
            let segments = text.split('/');
            for segment in segments.filter(|segment| segment.starts_with(':')) {
                let message = format!(
                    "the segment {segment:?} is compared as it stands; a parameter is \"{{{}}}\"",
                    &segment[1..]
                );
                self.report(ProblemCode::W26, &item.span, message);
            }
        }
    }

    /// Warns of methods that are probably misspelt.
    pub(crate) fn check_method(&mut self, method: &Method, span: &Span) {
        let registered = REGISTERED.split(' ');
        if registered.clone().any(|known| known == method.as_str()) {
            return;
        }
        let message = format!("{:?} is no registered method", method.as_str());
        let suggestion = nearest(method.as_str(), registered);
        let problem = Problem::new(ProblemCode::W27, span, message).suggest(suggestion);
        self.report.add(problem);
    }

    /// Warns of a name that looks like the absence of a value.
    pub(super) fn check_null(&mut self, name: &str, is_quoted: bool, span: &Span) {
        if !is_quoted && matches!(name, "~" | "null" | "Null" | "NULL") {
            let message = format!(
                "{name:?} without quotes is a name here, where YAML has no value: put it in quotes, \
                 or choose another"
            );
            self.report(ProblemCode::W29, span, message);
        }
    }

    /// Warns of names of a table that look like the absence of a value.
    pub(super) fn check_null_keys(&mut self, entries: &[NodeEntry]) {
        for entry in entries {
            self.check_null(&entry.key, entry.key_quoted, &entry.key_span);
        }
    }
}

/// Warns of fields of a rule that have no effect.
pub(super) fn warn(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let negated = MATCH.of(node).and_then(|found| NOT.entry(found));
    if let Some(not) = negated
        && not.value.entries().is_empty()
    {
        let message = format!(
            "`not` without fields matches every request, so that {:?} matches none; leave it out",
            rule.name
        );
        context.report(ProblemCode::W29, &not.key_span, message);
    }
    if rule.action.limits() {
        never_admitted(rule, node, context);
    }
}

/// Warns of costs that no set of the rule's quotas ever admits.
fn never_admitted(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    if rule.allowance.may_be_unlimited() {
        return;
    }
    let admitted = |set: &QuotaSet| {
        let quotas = set.quotas().map(|quota| quota.quota());
        let most = quotas.map(|quota| quota.capacity().saturating_add(quota.extra()));
        most.min().unwrap_or(u64::MAX)
    };
    let Some(largest) = rule.allowance.sets().into_iter().map(admitted).max() else {
        return;
    };
    let Some(cost) = COST.of(node) else { return };
    let header = cost::HEADER.of(cost);
    let max = header.and_then(|header| cost::HEADER_MAX.node(header));
    let default = cost.number().map(|_| cost).or(cost::DEFAULT.node(cost));
    let methods = cost::METHOD.entries(cost).iter().map(|entry| &entry.value);
    for node in default.into_iter().chain(max).chain(methods) {
        if let Some(cost) = node.number().filter(|cost| *cost > largest) {
            let effect = if rule.overflows() {
                "always overflows"
            } else {
                "never passes"
            };
            let message = format!(
                "a request that costs {cost} {effect}: the quota of {:?} admits {largest} at once",
                rule.name
            );
            context.report(ProblemCode::W28, &node.span, message);
        }
    }
}
