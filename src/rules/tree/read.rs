//! Reading a text of any format.

use std::sync::Arc;

use super::{
    node::{Node, TreeBounds},
    toml, yaml,
};
use crate::rules::{
    format::Format,
    problem::{Problem, ProblemCode, SourceText, Spot},
};

/// The longest file that is read.
pub(in crate::rules) const MAX_FILE_BYTES: usize = 1 << 20;

const BOUNDS: TreeBounds = TreeBounds {
    nodes: 100_000,
    depth: 32,
};

/// The tree of a file, as far as there is one, and what is wrong with its form. A file without
/// anything in it has no tree.
pub(in crate::rules) fn read(
    source: &Arc<SourceText>,
    format: Format,
) -> (Option<Node>, Vec<Problem>) {
    if source.text.len() > MAX_FILE_BYTES {
        let spot = Spot::new(source, 0, 0);
        let message = format!(
            "the file has {} bytes, more than {MAX_FILE_BYTES}; split it",
            source.text.len()
        );
        return (None, vec![Problem::new(ProblemCode::R01, &spot, message)]);
    }
    match format {
        Format::Yaml | Format::Json => match yaml::read(source, 0..source.text.len(), BOUNDS) {
            Ok(node) => (node, Vec::new()),
            Err(problem) => (None, vec![problem]),
        },
        Format::Toml => toml::read(source, BOUNDS),
    }
}
