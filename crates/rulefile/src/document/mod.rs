//! Documents: the values of a file as a tree, each with its place.

mod node;
mod toml;
mod yaml;

use std::sync::Arc;

pub use self::{
    node::{DocumentLimits, Node, NodeEntry, NodeValue, Scalar, report_duplicates},
    yaml::read as read_yaml,
};
use crate::{
    problems::{ProblemCode, Report},
    source_text::{Format, SourceText, Span},
};

/// The longest file that [`read`] accepts, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

const LIMITS: DocumentLimits = DocumentLimits {
    nodes: 100_000,
    depth: 32,
};

/// The root of a file, or `None` if the file is empty or its syntax is wrong.
///
/// Adds the problems of its form to the report.
pub fn read(source: &Arc<SourceText>, format: Format, report: &mut Report) -> Option<Node> {
    if source.text.len() > MAX_FILE_BYTES {
        let span = Span::new(source, 0, 0);
        let message = format!(
            "the file has {} bytes, more than {MAX_FILE_BYTES}; split it",
            source.text.len()
        );
        report.push(ProblemCode::R01, &span, message);
        return None;
    }
    match format {
        Format::Yaml | Format::Json => {
            let whole = 0..source.text.len();
            let root = yaml::read(source, whole, LIMITS, report);
            root.unwrap_or_else(|problem| {
                report.add(problem);
                None
            })
        }
        Format::Toml => {
            let root = toml::read(source, LIMITS);
            root.map_err(|problems| problems.into_iter().for_each(|problem| report.add(problem)))
                .ok()
        }
    }
}

/// Reports a manifest of Kubernetes, and returns whether it is one.
pub fn report_manifest(root: &Node, report: &mut Report) -> bool {
    let (Some(_), Some(kind)) = (root.get("apiVersion"), root.get("kind")) else {
        return false;
    };
    let message = match kind.text() {
        Some("ConfigMap") => "this is a ConfigMap, and the rules are in its `data`: check each entry as a file of its \
                              own"
            .to_owned(),
        Some(other) => format!("this is a manifest of Kubernetes of the kind {other}, and no rule file"),
        None => return false,
    };
    report.push(ProblemCode::R02, &kind.span, message);
    true
}
