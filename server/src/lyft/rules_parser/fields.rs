//! Fields of tables: reads values of the expected type, or reports a fault.

use tower_ratelimit_rulefile::{
    ProblemCode,
    document::{Node, NodeValue},
};

use super::parser_state::RulesParser;
use crate::lyft::yaml11_types::{YamlType, text_or_empty, type_of};

impl RulesParser<'_> {
    pub(super) fn text(&mut self, table: &Node, key: &str) -> String {
        match table.get(key).map(|node| (node, &node.value)) {
            None => String::new(),
            Some((_, NodeValue::Scalar(scalar))) => text_or_empty(scalar).to_owned(),
            Some((node, _)) => {
                self.fault(ProblemCode::R01, &node.span, format!("{key} is a text"));
                String::new()
            }
        }
    }

    pub(super) fn truth(&mut self, table: &Node, key: &str) -> bool {
        let Some(node) = table.get(key) else {
            return false;
        };
        match of_node(node) {
            Some(YamlType::Truth(truth)) => return truth,
            Some(YamlType::Null) => {}
            _ => self.fault(
                ProblemCode::R01,
                &node.span,
                format!("{key} is true or false"),
            ),
        }
        false
    }

    /// The number; `None` if it is absent.
    pub(super) fn number(&mut self, table: &Node, key: &str) -> Option<u32> {
        let node = table.get(key)?;
        let number = match of_node(node) {
            Some(YamlType::Whole(number)) => u32::try_from(number).ok(),
            // Reported already.
            Some(YamlType::Null | YamlType::Number(_)) => return None,
            _ => None,
        };
        if number.is_none() {
            let message = format!("{key} is a whole number from 0 to {}", u32::MAX);
            self.fault(ProblemCode::R04, &node.span, message);
        }
        number
    }

    pub(super) fn list<'n>(&mut self, table: &'n Node, key: &str) -> &'n [Node] {
        match table.get(key).map(|node| (node, &node.value)) {
            Some((_, NodeValue::List(items))) => items,
            None => &[],
            Some((node, _)) if of_node(node) == Some(YamlType::Null) => &[],
            Some((node, _)) => {
                self.fault(ProblemCode::R01, &node.span, format!("{key} is a list"));
                &[]
            }
        }
    }

    pub(super) fn table<'n>(&mut self, table: &'n Node, key: &str) -> Option<&'n Node> {
        let node = table.get(key)?;
        match &node.value {
            NodeValue::Table(_) => return Some(node),
            _ if of_node(node) == Some(YamlType::Null) => {}
            _ => self.fault(ProblemCode::R01, &node.span, format!("{key} is a table")),
        }
        None
    }
}

/// The items that are tables. Faults of the others are reported already.
pub(super) fn tables(items: &[Node]) -> impl Iterator<Item = &Node> {
    let is_table = |item: &&Node| matches!(item.value, NodeValue::Table(_));
    items.iter().filter(is_table)
}

/// The type of a scalar.
fn of_node(node: &Node) -> Option<YamlType> {
    match &node.value {
        NodeValue::Scalar(scalar) => Some(type_of(scalar)),
        _ => None,
    }
}
