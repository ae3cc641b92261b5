//! What rules say of each other: names, and which replaces which.

use std::collections::HashMap;

use super::context::Context;
use crate::rules::{problem::ProblemCode, rule::Rule, tree::Node};

/// The rules that each rule replaces, by name.
type Targets<'n> = HashMap<&'n str, Vec<&'n str>>;

/// Looks up the rules that each rule replaces. `nodes` are all rules, those with faults too.
pub(super) fn link(mut rules: Vec<Rule>, nodes: &[&Node], context: &mut Context<'_>) -> Vec<Rule> {
    let mut names: HashMap<&str, &Node> = HashMap::new();
    for node in nodes {
        let Some((name, name_node)) = name_of(node) else {
            continue;
        };
        match names.get(name) {
            Some(known) => {
                let message = format!("the rule name {name:?} is taken: {}", known.spot.short());
                context.fault(ProblemCode::R03, &name_node.spot, message);
            }
            None => drop(names.insert(name, node)),
        }
    }
    let targets = targets(nodes, &names, context);
    circles(nodes, &targets, context);
    let numbered = rules.iter().enumerate();
    let places: HashMap<Box<str>, u16> = numbered
        .map(|(at, rule)| (rule.name.clone(), at as u16))
        .collect();
    for rule in &mut rules {
        let replaced = targets.get(&*rule.name).into_iter().flatten();
        rule.replaces = replaced
            .filter_map(|name| places.get(*name).copied())
            .collect();
    }
    rules
}

fn name_of(node: &Node) -> Option<(&str, &Node)> {
    let name = node.get("name")?;
    Some((name.text()?, name))
}

/// The known names that each rule replaces; unknown ones are faults.
fn targets<'n>(
    nodes: &[&'n Node],
    names: &HashMap<&'n str, &'n Node>,
    context: &mut Context<'_>,
) -> Targets<'n> {
    let mut targets = Targets::new();
    let known = nodes
        .iter()
        .filter_map(|node| name_of(node))
        .map(|(name, _)| name);
    for node in nodes {
        let (Some((name, _)), Some(replaces)) = (name_of(node), node.get("replaces")) else {
            continue;
        };
        for item in replaces.items() {
            match item.text() {
                Some(target) if names.contains_key(target) => {
                    targets.entry(name).or_default().push(target);
                }
                Some(target) => context.unknown("rule", target, &item.spot, known.clone()),
                None => {}
            }
        }
    }
    targets
}

/// Rules that replace each other, or themselves: none of them would count.
fn circles(nodes: &[&Node], targets: &Targets<'_>, context: &mut Context<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for node in nodes {
        let (Some((name, _)), Some(replaces)) = (name_of(node), node.get("replaces")) else {
            continue;
        };
        let Some(circle) = circle_from(name, targets).filter(|_| !seen.contains(&name)) else {
            continue;
        };
        let way = circle.join(" -> ");
        let message = format!("rules replace each other: {way} -> {name}");
        context.fault(ProblemCode::R09, &replaces.spot, message);
        seen.extend(circle);
    }
}

/// The rules on the way from one back to itself.
fn circle_from<'n>(start: &'n str, targets: &Targets<'n>) -> Option<Vec<&'n str>> {
    let mut came_from: HashMap<&str, &str> = HashMap::new();
    let mut open = vec![start];
    while let Some(name) = open.pop() {
        for target in targets.get(name).into_iter().flatten().copied() {
            if target == start {
                return Some(way_back(name, start, &came_from));
            }
            if !came_from.contains_key(target) {
                came_from.insert(target, name);
                open.push(target);
            }
        }
    }
    None
}

fn way_back<'n>(
    mut name: &'n str,
    start: &'n str,
    came_from: &HashMap<&'n str, &'n str>,
) -> Vec<&'n str> {
    let mut way = vec![name];
    while let Some(before) = came_from.get(name).filter(|_| name != start) {
        way.push(before);
        name = before;
    }
    way.reverse();
    way
}
