//! References between rules: unique names, and the rules that a rule replaces.

use std::collections::{HashMap, HashSet};

use tower_ratelimit_rulefile::{ProblemCode, document::Node};

use super::{
    context::Context,
    rules::{NAME, REPLACES},
};
use crate::rule::Rule;
use tower_ratelimit_core::quota::OwnedQuota;

/// The most rules of a circle that a message lists.
const MAX_LISTED: usize = 24;

/// Resolves the names of replaced rules. `nodes` are all rules, also those with faults.
pub(super) fn link(mut rules: Vec<Rule>, nodes: &[&Node], context: &mut Context<'_>) -> Vec<Rule> {
    let names = names(nodes, context);
    policies_of_one_name(&rules, context);
    unknown_names(nodes, &names, context);
    circles(nodes, &names, context);
    let numbered = rules.iter().enumerate();
    let positions: HashMap<Box<str>, u16> = numbered
        .map(|(at, rule)| (rule.name.clone(), at as u16))
        .collect();
    for (at, rule) in rules.iter_mut().enumerate() {
        rule.position = at as u16;
        let names = replaced(names.get(&*rule.name).copied()).filter_map(Node::text);
        rule.replaces = names
            .filter_map(|name| positions.get(name).copied())
            .collect();
    }
    for rule in &rules {
        let replaced = rule
            .replaces
            .iter()
            .map(|position| &rules[usize::from(*position)]);
        let earlier =
            |other: &&Rule| other.position < rule.position && other.always_ends_the_list();
        if let Some(end) = replaced.into_iter().find(earlier) {
            too_late(rule, end, &names, context);
        }
    }
    rules
}

/// The rules by their names. Reports names that are in use twice.
fn names<'n>(nodes: &[&'n Node], context: &mut Context<'_>) -> HashMap<&'n str, &'n Node> {
    let mut names: HashMap<&str, &Node> = HashMap::new();
    for node in nodes {
        let Some((name, name_node)) = name_of(node) else {
            continue;
        };
        match names.get(name) {
            // Finding the line of a problem takes long.
            Some(_) if context.report.is_full() => break,
            Some(known) => {
                let message = format!("the rule name {name:?} is taken: {}", known.span.short());
                context.report(ProblemCode::R03, &name_node.span, message);
            }
            None => drop(names.insert(name, node)),
        }
    }
    names
}

/// Reports policies of one name, which headers and metrics would confuse: a quota `b` of a rule `a`, and a rule `a.b`.
fn policies_of_one_name(rules: &[Rule], context: &mut Context<'_>) {
    let mut known: HashMap<&str, &Rule> = HashMap::new();
    for rule in rules {
        let sets = rule.allowance.sets();
        let policies = sets.iter().flat_map(|set| set.quotas());
        for name in policies.filter_map(OwnedQuota::name) {
            let first = known.entry(name).or_insert(rule);
            if first.name != rule.name && !context.report.is_full() {
                let message = format!(
                    "the rules {:?} ({}) and {:?} would both have a policy named {name:?}",
                    first.name,
                    first.span.short(),
                    rule.name
                );
                context.report(ProblemCode::R03, &rule.span, message);
            }
        }
    }
}

/// Reports a rule that replaces nothing, since the list ends at `end` before it.
fn too_late(rule: &Rule, end: &Rule, names: &HashMap<&str, &Node>, context: &mut Context<'_>) {
    let (name, end_name) = (&rule.name, &end.name);
    let message = format!(
        "{name:?} replaces nothing: where {end_name:?} ({}) matches, the list has ended before it; \
         put {name:?} before {end_name:?}",
        end.span.short()
    );
    let mut items = replaced(names.get(&**name).copied());
    if let Some(item) = items.find(|item| item.text() == Some(end_name)) {
        context.report(ProblemCode::R09, &item.span, message);
    }
}

fn name_of(node: &Node) -> Option<(&str, &Node)> {
    let name = NAME.node(node)?;
    Some((name.text()?, name))
}

/// The items of the field in a rule that name those which it replaces.
fn replaced(node: Option<&Node>) -> std::slice::Iter<'_, Node> {
    let replaces = node.and_then(|node| REPLACES.of(node));
    replaces.map_or(&[][..], Node::items).iter()
}

fn unknown_names<'n>(
    nodes: &[&'n Node],
    names: &HashMap<&'n str, &'n Node>,
    context: &mut Context<'_>,
) {
    let named = nodes.iter().filter_map(|node| Some((node, name_of(node)?)));
    let known = named.clone().map(|(_, (name, _))| name);
    for item in named.flat_map(|(node, _)| replaced(Some(node))) {
        if let Some(target) = item.text().filter(|target| !names.contains_key(target)) {
            context.unknown("rule", target, &item.span, known.clone());
        }
    }
}

/// Reports rules that replace each other, or themselves: none of them would count. Depth-first search visits each rule
/// once.
fn circles<'n>(nodes: &[&'n Node], names: &HashMap<&'n str, &'n Node>, context: &mut Context<'_>) {
    let mut done: HashSet<&str> = HashSet::new();
    for (start, _) in nodes.iter().filter_map(|node| name_of(node)) {
        // The rules from the start to the current one, each with those that it replaces and that are left to visit.
        let mut path = vec![(start, replaced(names.get(start).copied()))];
        let mut on_path: HashSet<&str> = HashSet::from([start]);
        while let Some((name, left)) = path.last_mut() {
            let Some(item) = left.next() else {
                done.insert(name);
                on_path.remove(name);
                path.pop();
                continue;
            };
            match item.text().and_then(|text| names.get_key_value(text)) {
                Some((target, _)) if on_path.contains(target) => {
                    circle(target, &path, names, context);
                }
                Some((target, node)) if !done.contains(target) => {
                    on_path.insert(target);
                    path.push((target, replaced(Some(node))));
                }
                _ => {}
            }
        }
    }
}

/// Reports a circle: the part of the path that begins with `back_to`.
fn circle<T>(
    back_to: &str,
    path: &[(&str, T)],
    names: &HashMap<&str, &Node>,
    context: &mut Context<'_>,
) {
    let rules = path
        .iter()
        .map(|(name, _)| *name)
        .skip_while(|name| *name != back_to);
    let rules: Vec<&str> = rules.take(MAX_LISTED).collect();
    let message = format!(
        "rules replace each other: {} -> {back_to}",
        rules.join(" -> ")
    );
    if let Some(replaces) = names.get(back_to).and_then(|node| REPLACES.of(node)) {
        context.report(ProblemCode::R09, &replaces.span, message);
    }
}
