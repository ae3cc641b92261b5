//! Reads a text of any format.

use std::sync::Arc;

use super::{
    node::{DocumentLimits, Node},
    toml, yaml,
};
use crate::{
    file_format::Format,
    report::Report,
    rule_file_problem::ProblemCode,
    source::{SourceText, Span},
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
