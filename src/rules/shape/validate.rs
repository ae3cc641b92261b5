//! Holds a tree to the description: unknown and missing fields, values of another kind.

use std::collections::HashMap;

use super::{
    describe::{Shape, TableShape},
    fields::FILE,
};
use crate::rules::{
    problem::{Problem, ProblemCode, variable_in},
    report::{NO_VARIABLES, Report, listed, nearest},
    tree::{Node, NodeEntry, NodeValue},
};

/// Adds to the report all in which a file's tree is not as described.
pub(in crate::rules) fn validate(tree: &Node, report: &mut Report) {
    check_table(tree, &FILE, report);
}

fn check_table(node: &Node, table: &'static TableShape, report: &mut Report) {
    let NodeValue::Table(entries) = &node.value else {
        wrong_kind(node, &format!("{} is a table", table.name), report);
        return;
    };
    taken(entries, report);
    for entry in entries {
        if report.is_full() {
            return;
        }
        match table.fields.iter().find(|field| field.name == entry.key) {
            Some(field) => check(&entry.value, field.shape, field.name, report),
            None => unknown(entry, table, report),
        }
    }
    for field in table.fields.iter().filter(|field| field.required) {
        if node.get(field.name).is_none() {
            let message = format!("{} has no `{}`", table.name, field.name);
            report.fault(ProblemCode::R02, &node.spot, message);
        }
    }
    if table.one_field && entries.len() != 1 {
        let known = listed(table.fields.iter().map(|field| field.name));
        let message = format!("{} says one of {known}, not {}", table.name, entries.len());
        report.fault(ProblemCode::R02, &node.spot, message);
    }
}

/// Adds the keys that a table has twice.
pub fn taken(entries: &[NodeEntry], report: &mut Report) {
    let mut first: HashMap<&str, &NodeEntry> = HashMap::new();
    for entry in entries {
        if report.is_full() {
            return;
        }
        if let Some(known) = first.insert(&entry.key, entry) {
            let message = format!("{:?} is taken: {}", entry.key, known.key_spot.short());
            report.fault(ProblemCode::R03, &entry.key_spot, message);
        }
    }
}

/// The fields of files of Envoy's reference service.
const OF_ENVOY: [&str; 2] = ["domain", "descriptors"];

fn unknown(entry: &NodeEntry, table: &'static TableShape, report: &mut Report) {
    if std::ptr::eq(table, &FILE) && OF_ENVOY.contains(&entry.key.as_str()) {
        let message = format!(
            "{:?} is a field of Envoy's rate limit service: `tower-ratelimit serve` and `envoy` take \
             such files",
            entry.key
        );
        return report.fault(ProblemCode::R02, &entry.key_spot, message);
    }
    let names = || table.fields.iter().map(|field| field.name);
    let suggestion = nearest(&entry.key, names());
    let mut message = format!("unknown field {:?} in {}", entry.key, table.name);
    if suggestion.is_none() {
        message += &format!("; there is {}", listed(names()));
    }
    report.add(Problem::new(ProblemCode::R02, &entry.key_spot, message).suggest(suggestion));
}

/// Checks a value; `name` is the field that it stands in.
fn check(node: &Node, shape: &'static Shape, name: &str, report: &mut Report) {
    match shape {
        Shape::Table(table) => check_table(node, table, report),
        Shape::Many(item) | Shape::List(item) => {
            let list = matches!(node.value, NodeValue::List(_));
            if !list && matches!(shape, Shape::List(_)) {
                return wrong_kind(node, &format!("`{name}` is a list"), report);
            }
            if node.items().is_empty() && matches!(shape, Shape::Many(_)) {
                let message = format!("`{name}` is an empty list; it would never fit");
                return report.fault(ProblemCode::R01, &node.spot, message);
            }
            for item_node in node.items() {
                check(item_node, item, name, report);
            }
        }
        Shape::Names(value) => {
            let NodeValue::Table(entries) = &node.value else {
                return wrong_kind(node, &format!("`{name}` is a table"), report);
            };
            taken(entries, report);
            for entry in entries {
                check(&entry.value, value, &entry.key, report);
            }
        }
        Shape::Named(_, shape) => check(node, shape, name, report),
        Shape::Either(choices) => match choices.iter().find(|choice| fits_kind(node, choice)) {
            Some(choice) => check(node, choice, name, report),
            None => wrong_kind(node, &format!("`{name}` is {}", kinds(choices)), report),
        },
        Shape::Text(_) | Shape::Words(_) | Shape::Number(..) | Shape::Truth => {
            scalar(node, shape, name, report);
        }
    }
}

fn scalar(node: &Node, shape: &Shape, name: &str, report: &mut Report) {
    let Some(text) = node.text() else {
        return wrong_kind(node, &format!("`{name}` is {}", kind(shape)), report);
    };
    // Where it is also a fault, only the fault is shown.
    if let Some(variable) = variable_in(text) {
        let message = format!("{variable} stays as it stands: {NO_VARIABLES}");
        report.fault(ProblemCode::W29, &node.spot, message);
    }
    match shape {
        Shape::Text(example) if text.is_empty() => {
            let message = format!("`{name}` is empty; accepted is, for example, {example:?}");
            report.fault(ProblemCode::R01, &node.spot, message);
        }
        Shape::Words(words) if !words.contains(&text) => {
            let message = format!("`{name}` is {}, not {text:?}", kind(shape));
            let suggestion = nearest(text, words.iter().copied());
            report.add(Problem::new(ProblemCode::R01, &node.spot, message).suggest(suggestion));
        }
        Shape::Number(least, most)
            if node
                .number()
                .is_none_or(|number| !(*least..=*most).contains(&number)) =>
        {
            let message = format!("`{name}` is {}, not {text:?}", kind(shape));
            report.fault(ProblemCode::R01, &node.spot, message);
        }
        Shape::Truth if node.truth().is_none() => {
            let message = format!("`{name}` is true or false, not {text:?}");
            report.fault(ProblemCode::R01, &node.spot, message);
        }
        _ => {}
    }
}

/// Whether the value is of the kind that the shape is about, right or wrong.
fn fits_kind(node: &Node, shape: &Shape) -> bool {
    match (&node.value, shape) {
        (_, Shape::Truth) => node.truth().is_some(),
        (NodeValue::Scalar(_), Shape::Text(_) | Shape::Words(_) | Shape::Number(..))
        | (NodeValue::List(_), Shape::List(_))
        | (NodeValue::Table(_), Shape::Table(_) | Shape::Names(_)) => true,
        (NodeValue::List(_), Shape::Many(_)) => true,
        (_, Shape::Many(item) | Shape::Named(_, item)) => fits_kind(node, item),
        (_, Shape::Either(choices)) => choices.iter().any(|choice| fits_kind(node, choice)),
        _ => false,
    }
}

fn wrong_kind(node: &Node, expected: &str, report: &mut Report) {
    let found = match &node.value {
        NodeValue::Scalar(scalar) if scalar.text.is_empty() => "nothing",
        NodeValue::Scalar(_) => "a single value",
        NodeValue::List(_) => "a list",
        NodeValue::Table(_) => "a table",
    };
    let problem = Problem::new(
        ProblemCode::R01,
        &node.spot,
        format!("{expected}; here is {found}"),
    );
    report.add(match unquoted_braces(node) {
        Some(name) => problem.remedy(&format!(
            "a text that begins with a brace has to be in quotes: \"{{{name}}}\""
        )),
        None => problem,
    });
}

/// The word of a text such as `{id}` that YAML takes for a table.
fn unquoted_braces(node: &Node) -> Option<&str> {
    let [entry] = node.entries() else {
        return None;
    };
    // YAML's parser gives a missing value as `~`.
    let is_lone = !entry.key_quoted && matches!(entry.value.bare_text(), Some("" | "~"));
    is_lone.then_some(&*entry.key)
}

fn kinds(choices: &[Shape]) -> String {
    let kinds: Vec<String> = choices.iter().map(kind).collect();
    kinds.join(", or ")
}

fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Text(example) => format!("a text such as {example:?}"),
        Shape::Words(words) => listed(words.iter().copied()),
        Shape::Number(least, most) => format!("a whole number from {least} to {most}"),
        Shape::Truth => "true or false".to_owned(),
        Shape::Many(item) => format!("{}, or a list of these", kind(item)),
        Shape::List(_) => "a list".to_owned(),
        Shape::Table(_) | Shape::Names(_) => "a table".to_owned(),
        Shape::Named(_, shape) => kind(shape),
        Shape::Either(choices) => kinds(choices),
    }
}
