//! Warnings: files that can be used and are probably not meant.

use std::collections::HashSet;

use super::{context::Context, oddities};
use crate::rules::{
    matcher::Matcher,
    problem::{Problem, ProblemCode},
    rule::{Rule, RuleAction},
    tree::{Node, NodeValue},
};

/// The most rules that each later one is compared with.
const MAX_ENDS: usize = 500;

/// Adds the warnings about rules without faults. `nodes` are all rules.
pub(super) fn warn(rules: &[Rule], nodes: &[&Node], context: &mut Context<'_>) {
    if context.report.faults() > 0 {
        return;
    }
    let left_out: HashSet<u16> = rules
        .iter()
        .flat_map(|rule| rule.replaces.iter().copied())
        .collect();
    let mut ends: Vec<&Rule> = Vec::new();
    // Without faults the lists go side by side.
    for (at, (rule, node)) in rules.iter().zip(nodes).enumerate() {
        if let Some(end) = ends.iter().find(|end| covers(&end.matcher, &rule.matcher)) {
            let message = format!(
                "no request reaches the rule {:?}: {:?} ({}) ends the list for all that it matches",
                rule.name,
                end.name,
                end.spot.short()
            );
            let problem = Problem::new(ProblemCode::W21, &rule.spot, message);
            context.report.add(problem);
        }
        // A rule that another one may leave out does not always end the list.
        if rule.always_ends_the_list() && !left_out.contains(&(at as u16)) && ends.len() < MAX_ENDS
        {
            ends.push(rule);
        }
        chosen_by_clients(rule, node, context);
        oddities::warn(rule, node, context);
        if rule.action == RuleAction::Limit {
            for_everybody(rule, node, context);
        }
    }
}

/// Whether every request that `other` fits also fits `own`, as far as can be told from the fields.
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

/// Keys and tiers that are a header's or a query parameter's value, and rules that spare requests,
/// or do not apply, for the sake of what a client writes.
fn chosen_by_clients(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let defaults = context.defaults;
    let key = node
        .get("key")
        .or_else(|| defaults.and_then(|all| all.get("key")));
    let key = key.filter(|_| rule.action == RuleAction::Limit);
    let tier = node.get("tier").and_then(|tier| tier.get("header"));
    let found = [
        key.and_then(|key| key_part(key, "header")).map(|header| {
            let name = header.text().unwrap_or_default();
            let said = format!("the key is the header {name:?}");
            (header, said, "it has as many limits as it likes")
        }),
        key.and_then(|key| key_part(key, "query")).map(|query| {
            let name = query.text().unwrap_or_default();
            let said = format!("the key is the query parameter {name:?}");
            (query, said, "it has as many limits as it likes")
        }),
        tier.map(|header| {
            let name = header.text().unwrap_or_default();
            let said = format!("the tier is the header {name:?}");
            (header, said, "it chooses the best one")
        }),
        spared_by(rule, node).map(|(node, name)| {
            let said = format!("{:?} spares requests for the sake of {name}", rule.name);
            (node, said, "it is spared when it likes")
        }),
        evaded_by(rule, node).map(|(node, name)| {
            let said = format!("{:?} does not apply where `not` fits {name}", rule.name);
            (node, said, "it evades the rule when it likes")
        }),
    ];
    for (node, said, effect) in found.into_iter().flatten() {
        let message = format!(
            "{said}, which any client can write: {effect}, unless a proxy or an outer layer \
             writes it"
        );
        let problem = Problem::new(ProblemCode::W22, &node.spot, message);
        context.report.add(problem);
    }
}

/// The header, query parameter or host for whose sake other rules do not apply.
fn spared_by<'n>(rule: &Rule, node: &'n Node) -> Option<(&'n Node, String)> {
    let spares = rule.action != RuleAction::Deny && !rule.shadow && rule.spares_others();
    chosen_field(node.get("match").filter(|_| spares)?)
}

/// The header, query parameter or host for whose sake the rule itself does not apply.
fn evaded_by<'n>(rule: &Rule, node: &'n Node) -> Option<(&'n Node, String)> {
    let limits = rule.action != RuleAction::Allow && !rule.shadow;
    let matcher = node.get("match").filter(|_| limits)?;
    chosen_field(matcher.get("not")?)
}

/// A field by which a client brings it about that a match fits, unless the match says more that
/// clients cannot choose.
fn chosen_field(matcher: &Node) -> Option<(&Node, String)> {
    if matcher.get("client").is_some() || matcher.get("authenticated").is_some() {
        return None;
    }
    let named = |field: &'static str| {
        let mut entries = matcher.get(field)?.entries().iter();
        let entry = entries.find(|entry| entry.value.truth() != Some(false))?;
        let what = if field == "query" {
            "query parameter"
        } else {
            field
        };
        Some((&entry.value, format!("the {what} {:?}", entry.key)))
    };
    let host = || Some((matcher.get("host")?, "the host".to_owned()));
    named("header").or_else(|| named("query")).or_else(host)
}

/// The header or query parameter of a key.
fn key_part<'n>(key: &'n Node, field: &str) -> Option<&'n Node> {
    match &key.value {
        NodeValue::Scalar(_) => None,
        NodeValue::List(parts) => parts.iter().find_map(|part| key_part(part, field)),
        NodeValue::Table(_) => {
            let choices = key
                .get("first_of")
                .and_then(|choices| key_part(choices, field));
            key.get(field).or(choices)
        }
    }
}

fn for_everybody(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let defaults = context.defaults;
    let key = node
        .get("key")
        .or_else(|| defaults.and_then(|all| all.get("key")));
    let Some(key) = key.filter(|key| key.text() == Some("global")) else {
        return;
    };
    if !rule.shadow && !rule.allowance.sets().is_empty() {
        let message = "all clients share this limit, so that one of them can use it up for all; \
                       put a limit for each client beside it";
        context
            .report
            .add(Problem::new(ProblemCode::W23, &key.spot, message));
    }
}
