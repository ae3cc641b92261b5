//! Compares a document with the description of its fields.

use super::field::{FieldInfo, Shape, Table};
use crate::{
    document::{Node, NodeEntry, NodeValue, report_duplicates},
    problems::{NO_VARIABLES, Problem, ProblemCode, Report, listed, nearest, variable_in},
};

impl Table {
    /// Reports each field that is unknown, missing or written twice, and each value of a wrong kind.
    pub fn check(&self, node: &Node, report: &mut Report) {
        let NodeValue::Table(entries) = &node.value else {
            return wrong_kind(node, &format!("{} is a table", self.name), report);
        };
        report_duplicates(entries, report);
        for entry in entries {
            if report.is_full() {
                return;
            }
            match self.infos().find(|field| field.name == entry.key) {
                Some(field) => check(&entry.value, &field.shape, field.name, report),
                None => self.unknown(entry, report),
            }
        }
        for field in self.infos().filter(|field| field.required) {
            if node.get(field.name).is_none() {
                let message = format!("{} has no `{}`", self.name, field.name);
                report.push(ProblemCode::R02, &node.span, message);
            }
        }
        if self.one_field && entries.len() != 1 {
            let known = listed(self.names());
            let message = format!("{} has one of {known}, not {}", self.name, entries.len());
            report.push(ProblemCode::R02, &node.span, message);
        }
    }

    /// Whether a table has a field that [`check`](Self::check) reports as unknown.
    pub fn has_unknown(&self, node: &Node) -> bool {
        let is_known = |name: &str| self.names().any(|known| known == name);
        node.entries().iter().any(|entry| !is_known(&entry.key))
    }

    pub(super) fn infos(&self) -> impl Iterator<Item = &'static FieldInfo> + Clone {
        self.fields.iter().map(|field| field.info())
    }

    fn unknown(&self, entry: &NodeEntry, report: &mut Report) {
        let (foreign, hint) = self.foreign;
        if foreign.contains(&entry.key.as_str()) {
            let message = format!("{:?} is {hint}", entry.key);
            return report.push(ProblemCode::R02, &entry.key_span, message);
        }
        let names = || self.names();
        let suggestion = nearest(&entry.key, names());
        let mut message = format!("unknown field {:?} in {}", entry.key, self.name);
        if suggestion.is_none() {
            message += &format!("; there is {}", listed(names()));
        }
        report.add(Problem::new(ProblemCode::R02, &entry.key_span, message).suggest(suggestion));
    }
}

/// Checks the value of the field `name`.
fn check(node: &Node, shape: &Shape, name: &str, report: &mut Report) {
    match shape {
        Shape::Table(table) => table.check(node, report),
        Shape::Many(item) => {
            if node.items().is_empty() {
                let message =
                    format!("`{name}` is an empty list; list a value, or leave the field out");
                return report.push(ProblemCode::R01, &node.span, message);
            }
            check_items(node, item, name, report);
        }
        Shape::List(item) => match &node.value {
            NodeValue::List(_) => check_items(node, item, name, report),
            _ => wrong_kind(node, &format!("`{name}` is a list"), report),
        },
        Shape::Map(value) => {
            let NodeValue::Table(entries) = &node.value else {
                return wrong_kind(node, &format!("`{name}` is a table"), report);
            };
            report_duplicates(entries, report);
            for entry in entries {
                check(&entry.value, value, &entry.key, report);
            }
        }
        Shape::Named(_, shape) => check(node, shape, name, report),
        Shape::Either(choices) => match choices.iter().find(|choice| is_of_kind(node, choice)) {
            Some(choice) => check(node, choice, name, report),
            None => wrong_kind(node, &format!("`{name}` is {}", kinds(choices)), report),
        },
        Shape::Text(_)
        | Shape::Words(_)
        | Shape::Number(..)
        | Shape::NumberOfReader(..)
        | Shape::Decimal
        | Shape::Boolean => {
            check_scalar(node, shape, name, report);
        }
    }
}

fn check_items(node: &Node, shape: &Shape, name: &str, report: &mut Report) {
    let items = node.items().iter();
    items.for_each(|item| check(item, shape, name, report));
}

fn check_scalar(node: &Node, shape: &Shape, name: &str, report: &mut Report) {
    let Some(text) = node.text() else {
        return wrong_kind(node, &format!("`{name}` is {}", kind(shape)), report);
    };
    // A report with faults has no warnings, so a variable that is also a fault is reported once.
    if let Some(variable) = variable_in(text) {
        let message = format!("{variable} stays as it stands: {NO_VARIABLES}");
        report.push(ProblemCode::W29, &node.span, message);
    }
    let not_so = || format!("`{name}` is {}, not {text:?}", kind(shape));
    let message = match shape {
        Shape::Text(example) if text.is_empty() => {
            format!("`{name}` is empty; accepted is, for example, {example:?}")
        }
        Shape::Words(table) if !table.words().contains(&text) => {
            let suggestion = nearest(text, table.words().into_iter());
            let problem = Problem::new(ProblemCode::R01, &node.span, not_so());
            return report.add(problem.suggest(suggestion));
        }
        Shape::Number(least, most)
            if node
                .number()
                .is_none_or(|number| !(*least..=*most).contains(&number)) =>
        {
            not_so()
        }
        Shape::NumberOfReader(..) if node.number().is_none() => not_so(),
        Shape::Decimal if node.thousandths().is_none() => not_so(),
        Shape::Boolean if node.boolean().is_none() => not_so(),
        _ => return,
    };
    report.push(ProblemCode::R01, &node.span, message);
}

/// Whether the value is of the shape's kind: scalar, list or table.
fn is_of_kind(node: &Node, shape: &Shape) -> bool {
    match (&node.value, shape) {
        (_, Shape::Boolean) => node.boolean().is_some(),
        (
            NodeValue::Scalar(_),
            Shape::Text(_)
            | Shape::Words(_)
            | Shape::Number(..)
            | Shape::NumberOfReader(..)
            | Shape::Decimal,
        )
        | (NodeValue::List(_), Shape::List(_) | Shape::Many(_))
        | (NodeValue::Table(_), Shape::Table(_) | Shape::Map(_)) => true,
        (_, Shape::Many(item) | Shape::Named(_, item)) => is_of_kind(node, item),
        (_, Shape::Either(choices)) => choices.iter().any(|choice| is_of_kind(node, choice)),
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
    let message = format!("{expected}; here is {found}");
    let problem = Problem::new(ProblemCode::R01, &node.span, message);
    report.add(match unquoted_braces(node) {
        Some(name) => problem.remedy(&format!(
            "a text that begins with a brace has to be in quotes: \"{{{name}}}\""
        )),
        None => problem,
    });
}

/// The word of a text such as `{id}`, which YAML reads as a table of one key.
fn unquoted_braces(node: &Node) -> Option<&str> {
    let [entry] = node.entries() else {
        return None;
    };
    // The YAML parser returns `~` for a missing value.
    let is_lone = !entry.key_quoted && matches!(entry.value.unquoted_text(), Some("" | "~"));
    is_lone.then_some(&*entry.key)
}

fn kinds(choices: &[Shape]) -> String {
    let kinds: Vec<String> = choices.iter().map(kind).collect();
    kinds.join(", or ")
}

/// The shape as messages name it.
fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Text(example) => format!("a text such as {example:?}"),
        Shape::Words(table) => listed(table.words().into_iter()),
        Shape::Number(least, most) | Shape::NumberOfReader(least, most) => {
            format!("a whole number from {least} to {most}")
        }
        Shape::Decimal => "a number with at most three decimals, such as 0.125".to_owned(),
        Shape::Boolean => "true or false".to_owned(),
        Shape::Many(item) => format!("{}, or a list of these", kind(item)),
        Shape::List(_) => "a list".to_owned(),
        Shape::Table(_) | Shape::Map(_) => "a table".to_owned(),
        Shape::Named(_, shape) => kind(shape),
        Shape::Either(choices) => kinds(choices),
    }
}
