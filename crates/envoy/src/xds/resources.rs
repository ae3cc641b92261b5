//! A response of the control plane as rules: the whole set, or its faults. Each message becomes the document that a rule
//! file has, so that one parser reads both.

use std::{collections::HashMap, sync::Arc};

use prost::Message as _;
use serde_json::Value as Json;
use tower_ratelimit_rulefile::{
    MessagePath, ProblemCode, Report, RulesError, SourceText, Span,
    document::{Node, NodeEntry, NodeValue, Scalar},
};

use crate::{
    lyft::{Builder, Rules, RulesDocument},
    protobuf_json::of_struct,
    protobuf_messages::{
        Any, DescriptorConfig, DiscoveryResponse, RateLimitConfig, RateLimitPolicy, Unit,
    },
};
use tower_ratelimit_service::errors::shortened;

/// The type of the resources.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The most bytes of the faults that the control plane receives, without the mark of what is cut off.
const MAX_FAULT_BYTES: usize = 4_000;

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
    shortened(&error.to_line(), MAX_FAULT_BYTES)
}

/// The path of a table; `None` for the message itself.
type Path = Option<Arc<MessagePath>>;

/// The document of a message; `source` has the name of the resource.
pub(super) fn document(source: &Arc<SourceText>, config: RateLimitConfig) -> Node {
    let mut writer = Writer { source, order: 0 };
    let span = writer.span(None);
    let domain = writer.text(&None, "domain", config.domain);
    let descriptors = writer.descriptors(&None, config.descriptors);
    node(span, table([domain, descriptors]))
}

/// Writes the values of a message in their order.
struct Writer<'s> {
    source: &'s Arc<SourceText>,
    /// The number of values so far.
    order: usize,
}

impl Writer<'_> {
    fn span(&mut self, path: Path) -> Span {
        self.order += 1;
        Span::in_message(self.source, self.order, path)
    }

    /// A field of the table at `parent`. A field with its default value is absent from messages, and from files.
    fn entry(&mut self, parent: &Path, field: &'static str, value: NodeValue) -> NodeEntry {
        let span = self.span(Some(MessagePath::new(parent.as_ref(), field, None)));
        NodeEntry {
            key: field.to_owned(),
            key_quoted: true,
            key_span: span.clone(),
            value: node(span, value),
        }
    }

    fn text(&mut self, parent: &Path, field: &'static str, text: String) -> Option<NodeEntry> {
        (!text.is_empty()).then(|| self.entry(parent, field, quoted(text)))
    }

    fn truth(&mut self, parent: &Path, field: &'static str, truth: bool) -> Option<NodeEntry> {
        truth.then(|| self.entry(parent, field, plain("true")))
    }

    /// The tables of a list. `write` gets the path of each.
    fn list<T>(
        &mut self,
        parent: &Path,
        field: &'static str,
        items: Vec<T>,
        mut write: impl FnMut(&mut Self, &Path, T) -> NodeValue,
    ) -> Option<NodeEntry> {
        if items.is_empty() {
            return None;
        }
        let mut entry = self.entry(parent, field, NodeValue::List(Vec::new()));
        let items = items.into_iter().enumerate().map(|(index, item)| {
            let path = Some(MessagePath::new(parent.as_ref(), field, Some(index)));
            let span = self.span(path.clone());
            node(span, write(self, &path, item))
        });
        entry.value.value = NodeValue::List(items.collect());
        Some(entry)
    }

    fn descriptors(&mut self, parent: &Path, all: Vec<DescriptorConfig>) -> Option<NodeEntry> {
        self.list(parent, "descriptors", all, Self::descriptor)
    }

    fn descriptor(&mut self, path: &Path, descriptor: DescriptorConfig) -> NodeValue {
        let key = self.text(path, "key", descriptor.key);
        let value = self.text(path, "value", descriptor.value);
        let limit = descriptor
            .rate_limit
            .map(|limit| self.rate_limit(path, limit));
        let descriptors = self.descriptors(path, descriptor.descriptors);
        let modes = [
            ("shadow_mode", descriptor.shadow_mode),
            ("detailed_metric", descriptor.detailed_metric),
            ("quota_mode", descriptor.quota_mode),
        ];
        let modes = modes.map(|(field, truth)| self.truth(path, field, truth));
        let metadata = descriptor.metadata.map(|fields| {
            let mut entry = self.entry(path, "metadata", plain(""));
            entry.value.value = metadata(of_struct(&fields), &entry.key_span);
            entry
        });
        let entries = [key, value, limit, descriptors, metadata];
        table(entries.into_iter().chain(modes))
    }

    fn rate_limit(&mut self, parent: &Path, limit: RateLimitPolicy) -> NodeEntry {
        let mut entry = self.entry(parent, "rate_limit", plain(""));
        let path = Some(MessagePath::new(parent.as_ref(), "rate_limit", None));
        // Numbers without a unit are the text of a fault.
        let unit = Unit::try_from(limit.unit).map_or_else(|_| limit.unit.to_string(), Unit::name);
        let unit = self.text(&path, "unit", unit);
        let requests = plain(&limit.requests_per_unit.to_string());
        let requests = Some(self.entry(&path, "requests_per_unit", requests));
        let unlimited = self.truth(&path, "unlimited", limit.unlimited);
        let name = self.text(&path, "name", limit.name);
        let replaces = self.list(
            &path,
            "replaces",
            limit.replaces,
            |writer, path, replaced| table([writer.text(path, "name", replaced.name)]),
        );
        entry.value.value = table([unit, requests, unlimited, name, replaces]);
        entry
    }
}

const fn node(span: Span, value: NodeValue) -> Node {
    Node { span, value }
}

fn table(entries: impl IntoIterator<Item = Option<NodeEntry>>) -> NodeValue {
    NodeValue::Table(entries.into_iter().flatten().collect())
}

const fn quoted(text: String) -> NodeValue {
    NodeValue::Scalar(Scalar { text, quoted: true })
}

fn plain(text: &str) -> NodeValue {
    let text = text.to_owned();
    NodeValue::Scalar(Scalar {
        text,
        quoted: false,
    })
}

/// A value of metadata. It has no faults, so one place is enough.
fn metadata(value: Json, span: &Span) -> NodeValue {
    let inner = |value| node(span.clone(), metadata(value, span));
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) => NodeValue::List(items.into_iter().map(inner).collect()),
        Json::Object(fields) => table(fields.into_iter().map(|(key, value)| {
            Some(NodeEntry {
                key,
                key_quoted: true,
                key_span: span.clone(),
                value: inner(value),
            })
        })),
        value => plain(&value.to_string()),
    }
}
