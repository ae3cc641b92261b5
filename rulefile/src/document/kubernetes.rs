//! Manifests of Kubernetes, which rule files are not.

use super::node::Node;
use crate::{report::Report, rule_file_problem::ProblemCode};

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
