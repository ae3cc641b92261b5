//! Types of YAML 1.1 scalars, as the reference reads them, and metadata made of them.

use tower_ratelimit_rulefile::{
    ProblemCode, Report,
    document::{Node, NodeEntry, NodeValue, Scalar, report_duplicates},
};

use crate::protobuf_messages::{Struct, Value, ValueKind};

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum YamlType {
    Null,
    Truth(bool),
    /// A whole number of 64 bits with a sign.
    Whole(i64),
    /// Any other number.
    Number(f64),
    Text,
}

/// The type of a scalar.
pub(super) fn type_of(scalar: &Scalar) -> YamlType {
    if scalar.quoted {
        YamlType::Text
    } else {
        of_plain(&scalar.text)
    }
}

/// The type of a key.
pub(super) fn type_of_key(entry: &NodeEntry) -> YamlType {
    if entry.key_quoted {
        YamlType::Text
    } else {
        of_plain(&entry.key)
    }
}

/// The text; empty for null in any spelling.
pub(super) fn text_or_empty(scalar: &Scalar) -> &str {
    match type_of(scalar) {
        YamlType::Null => "",
        _ => &scalar.text,
    }
}

fn of_plain(text: &str) -> YamlType {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => YamlType::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            YamlType::Truth(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            YamlType::Truth(false)
        }
        ".nan" | ".NaN" | ".NAN" => YamlType::Number(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => YamlType::Number(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => YamlType::Number(f64::NEG_INFINITY),
        text => number(text),
    }
}

fn number(text: &str) -> YamlType {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return YamlType::Text;
    }
    let plain = text.replace('_', "");
    if let Some(whole) = whole(&plain) {
        return i64::try_from(whole).map_or(YamlType::Number(whole as f64), YamlType::Whole);
    }
    let is_decimal = plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match plain.parse() {
        Ok(number) if is_decimal => YamlType::Number(number),
        _ => YamlType::Text,
    }
}

/// A whole number: decimal, octal after a 0, or after a letter for its base.
fn whole(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if text.starts_with('-') => (-1, digits),
        Some(digits) => (1, digits),
        None => (1, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some(octal) if octal.starts_with('0') && lower.bytes().all(|b| b.is_ascii_digit()) => {
            (8, &lower[1..])
        }
        _ => (10, lower.as_str()),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = i128::from_str_radix(digits, base)
        .ok()
        .filter(|_| is_plain)?;
    Some(sign * number)
}

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
        NodeValue::Table(_) => table(node, report).fields.into(),
        NodeValue::List(items) => {
            let items = items.iter().map(|item| value(item, report));
            items.collect::<Vec<_>>().into()
        }
        NodeValue::Scalar(scalar) => match type_of(scalar) {
            YamlType::Null => ValueKind::NullValue(0).into(),
            YamlType::Truth(truth) => truth.into(),
            YamlType::Whole(number) => (number as f64).into(),
            YamlType::Number(number) => number.into(),
            YamlType::Text => scalar.text.as_str().into(),
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
        if let (Some(ValueKind::StructValue(known)), Some(ValueKind::StructValue(more))) =
            (&mut known.kind, &value.kind)
        {
            merge(known, more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        let cases = [
            ("", YamlType::Null),
            ("~", YamlType::Null),
            ("yes", YamlType::Truth(true)),
            ("off", YamlType::Truth(false)),
            ("yEs", YamlType::Text),
            ("10", YamlType::Whole(10)),
            ("-1", YamlType::Whole(-1)),
            ("+1_000", YamlType::Whole(1_000)),
            ("0x1F", YamlType::Whole(31)),
            ("010", YamlType::Whole(8)),
            ("0", YamlType::Whole(0)),
            ("0b11", YamlType::Whole(3)),
            ("09", YamlType::Number(9.0)),
            (
                "18446744073709551615",
                YamlType::Number(18_446_744_073_709_551_615.0),
            ),
            ("1.5", YamlType::Number(1.5)),
            (".5e3", YamlType::Number(500.0)),
            ("1e3", YamlType::Number(1_000.0)),
            ("10.0.0.1", YamlType::Text),
            ("1h", YamlType::Text),
            ("-", YamlType::Text),
            ("infinity", YamlType::Text),
            ("2026-01-01", YamlType::Text),
        ];
        for (text, expected) in cases {
            let scalar = |quoted| Scalar {
                text: text.to_owned(),
                quoted,
            };
            assert_eq!(type_of(&scalar(false)), expected, "{text:?}");
            assert_eq!(type_of(&scalar(true)), YamlType::Text, "{text:?}");
        }
    }
}
