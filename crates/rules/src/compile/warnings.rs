//! Warnings about rules without faults: unreachable ones, those that clients can evade or use up for others, and values
//! that are probably mistakes.

use std::collections::HashSet;

use http::{Method, header};
use tower_ratelimit_rulefile::{
    Problem, ProblemCode, Span,
    document::{Node, NodeEntry},
    fields::{Field, Tree},
    nearest,
    pattern::expression_in_path,
};

use super::{
    context::Context,
    keys,
    match_conditions::{AUTHENTICATED, CLIENT, HEADER, HOST, MATCH, MCP, NOT, QUERY},
    quotas::{TIER, TIER_HEADER},
    spend,
};
use crate::{
    cost::{self, COST},
    priority::{self, PRIORITY},
    request_matcher::{Matcher, Pattern},
    rule::{Rule, RuleAction},
    rule_quotas::QuotaSet,
};

/// The most rules that each other one is compared with.
const MAX_COMPARED: usize = 500;

/// Adds the warnings about rules without faults. `nodes` are all rules.
pub(super) fn warn(rules: &[Rule], nodes: &[&Node], context: &mut Context<'_>) {
    if context.report.faults() > 0 {
        return;
    }
    let replaced: HashSet<u16> = rules
        .iter()
        .flat_map(|rule| rule.replaces.iter().copied())
        .collect();
    let counts = |rule: &&Rule| !rule.shadow && (limits(rule) || rule.action == RuleAction::Deny);
    let counting: Vec<&Rule> = rules.iter().filter(counts).take(MAX_COMPARED).collect();
    let mut ends: Vec<&Rule> = Vec::new();
    // Without faults both lists have the same rules.
    for (at, (rule, node)) in rules.iter().zip(nodes).enumerate() {
        if let Some(end) = ends.iter().find(|end| covers(&end.matcher, &rule.matcher)) {
            let message = format!(
                "no request reaches the rule {:?}: {:?} ({}) ends the list for all that it matches",
                rule.name,
                end.name,
                end.span.short()
            );
            context.report(ProblemCode::W21, &rule.span, message);
        } else {
            left_out_by_clients(rule, node, &counting, context);
        }
        // A rule that another one may replace does not always end the list.
        if rule.always_ends_the_list()
            && !replaced.contains(&(at as u16))
            && ends.len() < MAX_COMPARED
        {
            ends.push(rule);
        }
        chosen_by_clients(rule, node, context);
        without_effect(rule, node, context);
        spend::warn(rule, node, context);
        if rule.action.limits() && !rule.overflows() {
            shared_by_all(rule, node, context);
        }
    }
}

/// Whether every request that fits `other` also fits `own`. `false` may be wrong, `true` is not.
fn covers(own: &Matcher, other: &Matcher) -> bool {
    fn among<T: PartialEq>(own: Option<&[T]>, other: Option<&[T]>) -> bool {
        own.is_none_or(|own| other.is_some_and(|other| other.iter().all(|item| own.contains(item))))
    }
    let paths = own.paths.as_ref().is_none_or(|own| {
        let covered = |path| own.iter().any(|pattern| pattern.covers(path));
        other
            .paths
            .as_ref()
            .is_some_and(|other| other.iter().all(covered))
    });
    let others = own.authenticated.is_none() && own.not.is_none();
    among(own.methods.as_deref(), other.methods.as_deref())
        && paths
        && among(own.routes.as_deref(), other.routes.as_deref())
        && among(own.hosts.as_deref(), other.hosts.as_deref())
        && among(own.clients.as_deref(), other.clients.as_deref())
        && among(own.times.as_deref(), other.times.as_deref())
        && own
            .headers
            .iter()
            .all(|header| other.headers.contains(header))
        && own.query.iter().all(|query| other.query.contains(query))
        && others
}

/// Warns of keys and tiers that a client chooses by a header or a query parameter, and of rules that a client evades.
fn chosen_by_clients(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let key = context.key_of(node);
    let key = key.filter(|_| rule.action.limits());
    let [key_header, key_query] = key.map(keys::header_and_query).unwrap_or_default();
    let tier = TIER.of(node).and_then(|tier| TIER_HEADER.node(tier));
    let class = PRIORITY.of(node).and_then(|of| priority::HEADER.node(of));
    let many = "it has as many limits as it likes";
    let chosen = [
        (key_header, "key is the header", many),
        (key_query, "key is the query parameter", many),
        (tier, "tier is the header", "it chooses the best one"),
        (class, "priority is the header", "it chooses the best class"),
    ];
    let chosen = chosen.map(|(node, what, effect)| {
        let cause = |node: &Node| format!("the {what} {:?}", node.text().unwrap_or_default());
        node.map(|node| (node, cause(node), effect))
    });
    let evaded = [
        exempted_by(rule, node).map(|(node, name)| {
            let cause = format!("{:?} exempts requests by {name}", rule.name);
            (node, cause, "it is exempt when it likes")
        }),
        evaded_by(rule, node).map(|(node, name)| {
            let cause = format!("{:?} does not apply where `not` fits {name}", rule.name);
            (node, cause, "it evades the rule when it likes")
        }),
    ];
    for (node, cause, effect) in chosen.into_iter().chain(evaded).flatten() {
        let message = format!(
            "{cause}, which any client can write: {effect}, unless a proxy or an outer layer \
             writes it"
        );
        context.report(ProblemCode::W22, &node.span, message);
    }
}

/// Warns of a limit that clients evade by leaving out a header, a query parameter or a host, if no other rule counts or
/// denies the request without it.
fn left_out_by_clients(rule: &Rule, node: &Node, counting: &[&Rule], context: &mut Context<'_>) {
    if rule.shadow || !limits(rule) || exempted_by(rule, node).is_some() {
        return;
    }
    let Some((field, name)) = MATCH.of(node).and_then(|of| chosen_field(of, &[])) else {
        return;
    };
    // A request without it is another one.
    let mut headers = rule.matcher.headers.iter();
    if headers.any(|condition| condition.name() == header::UPGRADE) {
        return;
    }
    let bare = without_chosen_fields(&rule.matcher);
    if !counting.iter().any(|other| covers(&other.matcher, &bare)) {
        let message = format!(
            "{:?} applies only by {name}, which any client can leave out or write otherwise: no other limit \
             counts the request then, unless a proxy or an outer layer writes it",
            rule.name
        );
        context.report(ProblemCode::W22, &field.span, message);
    }
}

/// The matcher of requests that leave out all headers, query parameters and hosts of this one.
fn without_chosen_fields(matcher: &Matcher) -> Matcher {
    let mut bare = matcher.clone();
    bare.hosts = None;
    for condition in &mut bare.headers {
        *condition = condition.absent();
    }
    let absent = |(_, pattern): &mut (_, Pattern)| *pattern = Pattern::Absent;
    bare.query.iter_mut().for_each(absent);
    bare
}

fn limits(rule: &Rule) -> bool {
    let has_limit = rule.in_flight.is_some() || !rule.allowance.sets().is_empty();
    rule.action.limits() && has_limit
}

/// The header, query parameter or host of a match that exempts requests from other rules.
fn exempted_by<'n>(rule: &Rule, node: &'n Node) -> Option<(&'n Node, String)> {
    let exempts = rule.action != RuleAction::Deny && !rule.shadow && rule.exempts_from_others();
    chosen_field(MATCH.of(node).filter(|_| exempts)?, &[&MCP])
}

/// The header, query parameter or host of a `not` that lets requests evade the rule itself.
fn evaded_by<'n>(rule: &Rule, node: &'n Node) -> Option<(&'n Node, String)> {
    let limits = rule.action != RuleAction::Allow && !rule.shadow;
    chosen_field(NOT.of(MATCH.of(node).filter(|_| limits)?)?, &[&MCP])
}

/// A field of the match whose value the client chooses, or one of `others`. `None` if the match also has a field that
/// clients cannot choose.
fn chosen_field<'n>(matcher: &'n Node, others: &[&Field<Tree>]) -> Option<(&'n Node, String)> {
    if CLIENT.node(matcher).is_some() || AUTHENTICATED.node(matcher).is_some() {
        return None;
    }
    let named = |field: &Field<Tree>, kind: &str| {
        let mut entries = field.entries(matcher).iter();
        let entry = entries.find(|entry| entry.value.boolean() != Some(false))?;
        Some((&entry.value, format!("the {kind} {:?}", entry.key)))
    };
    let host = || Some((HOST.node(matcher)?, "the host".to_owned()));
    named(&HEADER, "header")
        .or_else(|| named(&QUERY, "query parameter"))
        .or_else(host)
        .or_else(|| {
            let other =
                |field: &&Field<Tree>| Some((field.node(matcher)?, format!("`{}`", field.name())));
            others.iter().find_map(other)
        })
}

/// Warns of a limit that one client can use up for all.
fn shared_by_all(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let is_global = |key: &&Node| key.text() == Some("global");
    let Some(key) = context.key_of(node).filter(is_global) else {
        return;
    };
    if !rule.shadow && limits(rule) {
        let message = "all clients share this limit, so that one of them can use it up for all; \
                       put a limit for each client beside it";
        context.report(ProblemCode::W23, &key.span, message);
    }
}

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
fn without_effect(rule: &Rule, node: &Node, context: &mut Context<'_>) {
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
