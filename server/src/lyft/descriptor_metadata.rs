//! The `metadata` of a descriptor as a message.

use tower_ratelimit_rulefile::{
    ProblemCode, Report,
    document::{Node, NodeValue, report_duplicates},
};

use super::yaml11_types::{YamlType, type_of};
use crate::protobuf_messages::{Struct, Value, ValueKind};

/// The table as a message; `None` if it is null.
pub(super) fn metadata(node: &Node, report: &mut Report) -> Option<Struct> {
    match &node.value {
        NodeValue::Table(_) => Some(table(node, report)).filter(|fields| !fields.fields.is_empty()),
        NodeValue::Scalar(scalar) if type_of(scalar) == YamlType::Null => None,
        _ => {
            report.push(ProblemCode::R01, &node.span, "metadata is a table");
            None
        }
    }
}

fn table(node: &Node, report: &mut Report) -> Struct {
    report_duplicates(node.entries(), report);
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
        NodeValue::Scalar(scalar) => match type_of(scalar) {
            YamlType::Null => ValueKind::Null(0).into(),
            YamlType::Truth(truth) => ValueKind::Truth(truth).into(),
            YamlType::Whole(number) => ValueKind::Number(number as f64).into(),
            YamlType::Number(number) => ValueKind::Number(number).into(),
            YamlType::Text => Value::text(&scalar.text),
        },
    }
}

/// Adds the values of `from` that `to` lacks, recursively.
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
