//! Reading a text of any format.

use std::sync::Arc;

use super::{
    node::{Node, TreeBounds},
    toml, yaml,
};
use crate::rules::{
    format::Format,
    problem::{ProblemCode, SourceText, Spot},
    report::Report,
};

/// The longest file that is read.
pub(in crate::rules) const MAX_FILE_BYTES: usize = 1 << 20;

const BOUNDS: TreeBounds = TreeBounds {
    nodes: 100_000,
    depth: 32,
};

/// The tree of a file, as far as there is one. Problems of its form are added to the report. A file
/// without anything in it has no tree.
pub(in crate::rules) fn read(
    source: &Arc<SourceText>,
    format: Format,
    report: &mut Report,
) -> Option<Node> {
    if source.text.len() > MAX_FILE_BYTES {
        let spot = Spot::new(source, 0, 0);
        let message = format!(
            "the file has {} bytes, more than {MAX_FILE_BYTES}; split it",
            source.text.len()
        );
        report.fault(ProblemCode::R01, &spot, message);
        return None;
    }
    match format {
        Format::Yaml | Format::Json => {
            let whole = 0..source.text.len();
            let tree = yaml::read(source, whole, BOUNDS, report);
            tree.unwrap_or_else(|problem| {
                report.add(problem);
                None
            })
        }
        Format::Toml => {
            let (tree, problems) = toml::read(source, BOUNDS);
            problems.into_iter().for_each(|problem| report.add(problem));
            tree
        }
    }
}
