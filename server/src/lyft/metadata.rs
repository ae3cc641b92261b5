//! `metadata` of a descriptor as a message.

use super::{
    problem::{Problem, ProblemCode},
    tree::{Node, NodeValue},
    typed::Typed,
};
use crate::messages::{Struct, Value, ValueKind};

/// The table as a message; none of nothing.
pub(super) fn metadata(node: &Node) -> Result<Option<Struct>, Problem> {
    let fields = match &node.value {
        NodeValue::Table(_) => table(node),
        NodeValue::Scalar(scalar) if scalar.typed() == Typed::Null => return Ok(None),
        _ => {
            let message = "metadata is a table";
            return Err(Problem::new(ProblemCode::R01, &node.spot, message));
        }
    };
    Ok(Some(fields).filter(|fields| !fields.fields.is_empty()))
}

fn table(node: &Node) -> Struct {
    let entries = node.entries().iter();
    let fields = entries.map(|entry| (entry.key.text.clone(), value(&entry.value)));
    Struct {
        fields: fields.collect(),
    }
}

fn value(node: &Node) -> Value {
    match &node.value {
        NodeValue::Table(_) => ValueKind::Struct(table(node)).into(),
        NodeValue::List(items) => Value::list(items.iter().map(value)),
        NodeValue::Scalar(scalar) => match scalar.typed() {
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
