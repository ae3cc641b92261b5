//! What rules say of each other: names, and which replaces which.

use std::collections::{HashMap, HashSet};

use super::context::Context;
use crate::{
    quota::OwnedQuota,
    rules::{problem::ProblemCode, rule::Rule, tree::Node},
};

/// The most rules of a circle that a message lists.
const MAX_TOLD: usize = 24;

/// The rules that each rule replaces, by name.
type Targets<'n> = HashMap<&'n str, Vec<&'n str>>;

/// Looks up the rules that each rule replaces. `nodes` are all rules, those with faults too.
pub(super) fn link(mut rules: Vec<Rule>, nodes: &[&Node], context: &mut Context<'_>) -> Vec<Rule> {
    let names = names(nodes, context);
    policies_of_one_name(&rules, context);
    let targets = targets(nodes, &names, context);
    circles(nodes, &names, &targets, context);
    let numbered = rules.iter().enumerate();
    let places: HashMap<Box<str>, u16> = numbered
        .map(|(at, rule)| (rule.name.clone(), at as u16))
        .collect();
    for (at, rule) in rules.iter_mut().enumerate() {
        rule.place = at as u16;
        let replaced = targets.get(&*rule.name).into_iter().flatten();
        rule.replaces = replaced
            .filter_map(|name| places.get(*name).copied())
            .collect();
    }
    for rule in &rules {
        let replaced = rule
            .replaces
            .iter()
            .map(|place| &rules[usize::from(*place)]);
        let earlier = |other: &&Rule| other.place < rule.place && other.always_ends_the_list();
        if let Some(end) = replaced.into_iter().find(earlier) {
            too_late(rule, end, &names, context);
        }
    }
    rules
}

/// The rules by their names; those that are taken are faults.
fn names<'n>(nodes: &[&'n Node], context: &mut Context<'_>) -> HashMap<&'n str, &'n Node> {
    let mut names: HashMap<&str, &Node> = HashMap::new();
    for node in nodes {
        let Some((name, name_node)) = name_of(node) else {
            continue;
        };
        match names.get(name) {
            // Looking for the line takes long.
            Some(_) if context.report.is_full() => break,
            Some(known) => {
                let message = format!("the rule name {name:?} is taken: {}", known.spot.short());
                context.fault(ProblemCode::R03, &name_node.spot, message);
            }
            None => drop(names.insert(name, node)),
        }
    }
    names
}

/// A quota `b` of a rule `a` and a rule `a.b`: headers and metrics could not tell them apart.
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
                    first.spot.short(),
                    rule.name
                );
                context.fault(ProblemCode::R03, &rule.spot, message);
            }
        }
    }
}

/// A rule that replaces one where the list has ended before it is looked at.
fn too_late(rule: &Rule, end: &Rule, names: &HashMap<&str, &Node>, context: &mut Context<'_>) {
    let (name, end_name) = (&rule.name, &end.name);
    let message = format!(
        "{name:?} replaces nothing: where {end_name:?} ({}) matches, the list has ended before it; \
         put {name:?} before {end_name:?}",
        end.spot.short()
    );
    let replaces = names.get(&**name).and_then(|node| node.get("replaces"));
    let mut items = replaces.into_iter().flat_map(Node::items);
    if let Some(item) = items.find(|item| item.text() == Some(end_name)) {
        context.fault(ProblemCode::R09, &item.spot, message);
    }
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

/// Rules that replace each other, or themselves: none of them would count. Each rule is looked at
/// once, however long the chains are.
fn circles<'n>(
    nodes: &[&'n Node],
    names: &HashMap<&'n str, &'n Node>,
    targets: &Targets<'n>,
    context: &mut Context<'_>,
) {
    let mut done: HashSet<&str> = HashSet::new();
    for (start, _) in nodes.iter().filter_map(|node| name_of(node)) {
        // The way from the start, and which target of each rule comes next.
        let mut way: Vec<(&str, usize)> = vec![(start, 0)];
        let mut on_way: HashSet<&str> = HashSet::from([start]);
        while let Some((name, next)) = way.last_mut() {
            let target = targets
                .get(name)
                .and_then(|targets| targets.get(*next))
                .copied();
            *next += 1;
            match target {
                Some(target) if on_way.contains(target) => {
                    circle(target, &way, names, context);
                }
                Some(target) if !done.contains(target) => {
                    on_way.insert(target);
                    way.push((target, 0));
                }
                Some(_) => {}
                None => {
                    done.insert(name);
                    on_way.remove(name);
                    way.pop();
                }
            }
        }
    }
}

/// Tells of a circle: the way from a rule on, which leads back to it.
fn circle(
    back_to: &str,
    way: &[(&str, usize)],
    names: &HashMap<&str, &Node>,
    context: &mut Context<'_>,
) {
    let rules = way
        .iter()
        .map(|(name, _)| *name)
        .skip_while(|name| *name != back_to);
    let rules: Vec<&str> = rules.take(MAX_TOLD).collect();
    let message = format!(
        "rules replace each other: {} -> {back_to}",
        rules.join(" -> ")
    );
    if let Some(replaces) = names.get(back_to).and_then(|node| node.get("replaces")) {
        context.fault(ProblemCode::R09, &replaces.spot, message);
    }
}
