//! `metadata` of a descriptor as a message.

use tower_ratelimit::rules::source::{Node, NodeValue, ProblemCode, Report, taken};

use super::typed::{Typed, typed};
use crate::messages::{Struct, Value, ValueKind};

/// The table as a message; none of nothing.
pub(super) fn metadata(node: &Node, report: &mut Report) -> Option<Struct> {
    match &node.value {
        NodeValue::Table(_) => Some(table(node, report)).filter(|fields| !fields.fields.is_empty()),
        NodeValue::Scalar(scalar) if typed(scalar) == Typed::Null => None,
        _ => {
            report.fault(ProblemCode::R01, &node.spot, "metadata is a table");
            None
        }
    }
}

fn table(node: &Node, report: &mut Report) -> Struct {
    taken(node.entries(), report);
    let entries = node.entries().iter();
    let fields = entries.map(|entry| (entry.key.clone(), value(&entry.value, report)));
    Struct {
        fields: fields.collect(),
    }
}

fn value(node: &Node, report: &mut Report) -> Value {
    match &node.value {
        NodeValue::Table(_) => ValueKind::Struct(table(node, report)).into(),
        NodeValue::List(items) => Value::list(items.iter().map(|item| value(item, report))),
        NodeValue::Scalar(scalar) => match typed(scalar) {
            Typed::Null => ValueKind::Null(0).into(),
            Typed::Truth(truth) => ValueKind::Truth(truth).into(),
            Typed::Whole(number) => ValueKind::Number(number as f64).into(),
            Typed::Number(number) => ValueKind::Number(number).into(),
            Typed::Text => Value::text(&scalar.text),
        },
    }
}

/// Adds what `from` says and `to` does not; tables in tables likewise.
pub(crate) fn merge(to: &mut Struct, from: &Struct) {
    for (key, value) in &from.fields {
        let Some(known) = to.fields.get_mut(key) else {
            to.fields.insert(key.clone(), value.clone());
            continue;
        };
        if let (Some(ValueKind::Struct(known)), Some(ValueKind::Struct(more))) =
            (&mut known.kind, &value.kind)
        {
            merge(known, more);
        }
    }
}
