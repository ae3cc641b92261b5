//! A response of the control plane as rules: the whole set, or its faults.

use std::{collections::HashMap, sync::Arc};

use prost::Message as _;
use tower_ratelimit_rulefile::{ProblemCode, Report, RulesError, SourceText, Span};

use super::{
    message_as_document::document,
    messages::{Any, DiscoveryResponse, RateLimitConfig},
};
use crate::lyft::{Builder, Rules, RulesDocument};

/// The type of the resources.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The most bytes of the faults that the control plane receives.
const MAX_FAULT_BYTES: usize = 4 << 10;

/// Reads a response. A set without resources has no limits.
///
/// # Errors
///
/// All faults: those of rule files, and of resources. Each begins with the name of its resource and the path there.
pub fn rules(response: DiscoveryResponse, builder: &Builder) -> Result<Rules, RulesError> {
    let mut report = Report::default();
    if response.type_url != TYPE_URL {
        let message = other_type(&response.type_url);
        report.push(ProblemCode::R01, &place("the response"), message);
    }
    let mut documents = Vec::with_capacity(response.resources.len());
    let mut names = HashMap::new();
    for (index, resource) in response.resources.into_iter().enumerate() {
        let Some(config) = config(&resource, index, &mut report) else {
            continue;
        };
        let name = match config.name.as_str() {
            "" => format!("resources[{index}]"),
            name => name.to_owned(),
        };
        if let Some(first) = names.insert(name.clone(), index) {
            let message = format!("the name is taken by resources[{first}]");
            report.push(ProblemCode::R03, &place(&name), message);
        }
        // The digest is of the bytes, so that operators can compare instances.
        let source = Arc::new(SourceText::new(name, String::new()));
        documents.push(RulesDocument {
            name: source.name.clone(),
            sha256: SourceText::sha256_of(&resource.value),
            root: document(&source, config),
        });
    }
    builder.read_documents(documents, report)
}

fn config(resource: &Any, index: usize, report: &mut Report) -> Option<RateLimitConfig> {
    let mut fault = |message: String| {
        report.push(
            ProblemCode::R01,
            &place(&format!("resources[{index}]")),
            message,
        );
    };
    if resource.type_url != TYPE_URL {
        fault(other_type(&resource.type_url));
        return None;
    }
    let decoded = RateLimitConfig::decode(&*resource.value);
    decoded
        .map_err(|error| fault(format!("the bytes are no RateLimitConfig: {error}")))
        .ok()
}

fn other_type(found: &str) -> String {
    format!("the type is {found:?}, and not {TYPE_URL:?}")
}

fn place(name: &str) -> Span {
    let source = Arc::new(SourceText::new(name.to_owned(), String::new()));
    Span::in_message(&source, 0, None)
}

/// The faults for the control plane, on one line of bounded length.
pub(crate) fn fault_line(error: &RulesError) -> String {
    const CUT: &str = "…";
    let mut line = error.to_line();
    if line.len() > MAX_FAULT_BYTES {
        let mut end = MAX_FAULT_BYTES - CUT.len();
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line += CUT;
    }
    line
}
