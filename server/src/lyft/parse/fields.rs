//! Fields of tables: values of the kind that belongs there, or a fault.

use tower_ratelimit::rules::source::{Node, NodeValue, ProblemCode};

use super::parser::RulesParser;
use crate::lyft::typed::{Typed, text_or_empty, typed};

impl RulesParser<'_> {
    pub(super) fn text(&mut self, table: &Node, key: &str) -> String {
        match table.get(key).map(|node| (node, &node.value)) {
            None => String::new(),
            Some((_, NodeValue::Scalar(scalar))) => text_or_empty(scalar).to_owned(),
            Some((node, _)) => {
                self.tell(ProblemCode::R01, &node.spot, format!("{key} is a text"));
                String::new()
            }
        }
    }

    pub(super) fn truth(&mut self, table: &Node, key: &str) -> bool {
        let Some(node) = table.get(key) else {
            return false;
        };
        match of_node(node) {
            Some(Typed::Truth(truth)) => return truth,
            Some(Typed::Null) => {}
            _ => self.tell(
                ProblemCode::R01,
                &node.spot,
                format!("{key} is true or false"),
            ),
        }
        false
    }

    /// The number; none if nothing is said.
    pub(super) fn number(&mut self, table: &Node, key: &str) -> Option<u32> {
        let node = table.get(key)?;
        let number = match of_node(node) {
            Some(Typed::Whole(number)) => u32::try_from(number).ok(),
            // Said already.
            Some(Typed::Null | Typed::Number(_)) => return None,
            _ => None,
        };
        if number.is_none() {
            let message = format!("{key} is a whole number from 0 to {}", u32::MAX);
            self.tell(ProblemCode::R04, &node.spot, message);
        }
        number
    }

    pub(super) fn list<'n>(&mut self, table: &'n Node, key: &str) -> &'n [Node] {
        match table.get(key).map(|node| (node, &node.value)) {
            Some((_, NodeValue::List(items))) => items,
            None => &[],
            Some((node, _)) if of_node(node) == Some(Typed::Null) => &[],
            Some((node, _)) => {
                self.tell(ProblemCode::R01, &node.spot, format!("{key} is a list"));
                &[]
            }
        }
    }

    pub(super) fn table<'n>(&mut self, table: &'n Node, key: &str) -> Option<&'n Node> {
        let node = table.get(key)?;
        match &node.value {
            NodeValue::Table(_) => return Some(node),
            _ if of_node(node) == Some(Typed::Null) => {}
            _ => self.tell(ProblemCode::R01, &node.spot, format!("{key} is a table")),
        }
        None
    }
}

/// The items that are tables; what is said of the others is said already.
pub(super) fn tables(items: &[Node]) -> impl Iterator<Item = &Node> {
    let is_table = |item: &&Node| matches!(item.value, NodeValue::Table(_));
    items.iter().filter(is_table)
}

/// The type of a value without parts.
fn of_node(node: &Node) -> Option<Typed> {
    match &node.value {
        NodeValue::Scalar(scalar) => Some(typed(scalar)),
        _ => None,
    }
}
