//! The parser of rule files: faults and warnings.

mod algorithm_extensions;
mod fields;
mod key_orders;
mod misplaced_keys;
mod parser_state;
mod split_documents;

use std::{collections::HashSet, sync::Arc};

use tower_ratelimit_rulefile::{
    ProblemCode, Report, RulesError, SourceText, Span,
    document::{
        DocumentLimits, Node, NodeEntry, NodeValue, read_yaml, report_duplicates, report_manifest,
    },
};

use self::{
    algorithm_extensions::EXTENSIONS, fields::tables, parser_state::RulesParser,
    split_documents::parts,
};
use super::{
    descriptor_metadata::metadata,
    rules::{Builder, Descriptor, Level, Limit, Rules},
    wildcard::Wildcard,
    yaml11_types::{YamlType, text_or_empty, type_of, type_of_key},
};
use crate::protobuf_messages::Unit;

/// The most bytes of a file.
const MAX_FILE_BYTES: usize = 32 << 20;

/// Files of the reference grow large, and a nested descriptor takes two levels of YAML.
const BOUNDS: DocumentLimits = DocumentLimits {
    nodes: 4_000_000,
    depth: 64,
};

const ROOT: [&str; 2] = ["domain", "descriptors"];

const DESCRIPTOR: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// The keys of a descriptor that have a meaning with its own limit only.
const OF_LIMITS: [&str; 3] = ["shadow_mode", "quota_mode", "detailed_metric"];

const RATE_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];

const REPLACES: [&str; 1] = ["name"];

pub(super) fn parse(
    texts: impl Iterator<Item = (String, String)>,
    settings: &Builder,
) -> Result<Rules, RulesError> {
    let mut parser = RulesParser::new(settings, Report::default());
    for (name, text) in texts {
        let source = Arc::new(SourceText::new(name, text));
        parser.file(&source);
        parser
            .rules
            .files
            .push((source.name.clone(), source.sha256()));
    }
    let rules = parser.finish()?;
    if rules.domains.is_empty() {
        let message = "there is not a single domain, so nothing would be limited";
        return Err(RulesError::unreadable(message.to_owned()));
    }
    Ok(rules)
}

/// The values of rules that are no file.
pub(crate) struct RulesDocument {
    pub(crate) name: String,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) root: Node,
}

/// Reads documents, after the faults in `report`.
pub(super) fn read_documents(
    documents: Vec<RulesDocument>,
    report: Report,
    settings: &Builder,
) -> Result<Rules, RulesError> {
    let mut parser = RulesParser::new(settings, report);
    for document in documents {
        parser.root(&document.root);
        parser.rules.files.push((document.name, document.sha256));
    }
    parser.finish()
}

impl RulesParser<'_> {
    fn file(&mut self, source: &Arc<SourceText>) {
        let span = |start, end| Span::new(source, start, end);
        if source.text.len() > MAX_FILE_BYTES {
            let message = format!("the file has more than {MAX_FILE_BYTES} bytes; split it");
            return self.fault(ProblemCode::R01, &span(0, 0), message);
        }
        let parts = parts(&source.text);
        for (at, (start, end)) in parts.iter().copied().enumerate() {
            if at == 1 {
                let message = "a further domain in the file: Envoy's reference service reads one of \
                               a file, so give each its own";
                self.fault(ProblemCode::W33, &span(start, start), message);
            }
            match read_yaml(source, start..end, BOUNDS, &mut self.report) {
                Ok(Some(root)) => self.root(&root),
                Ok(None) if parts.len() > 1 => {}
                Ok(None) => self.fault(ProblemCode::R02, &span(0, 0), "the file has no domain"),
                Err(problem) => self.report.add(problem),
            }
        }
    }

    fn root(&mut self, root: &Node) {
        if !matches!(root.value, NodeValue::Table(_)) {
            let message = "a file is a table with a domain and descriptors";
            return self.fault(ProblemCode::R01, &root.span, message);
        }
        if report_manifest(root, &mut self.report) {
            return;
        }
        if let Some(rules) = root.get("rules")
            && root.get("domain").is_none()
        {
            let message = "these are rules of requests, not of descriptors: `tower-ratelimit gateway` \
                           takes them, and `serve` with --auth-rules";
            return self.fault(ProblemCode::R02, &rules.span, message);
        }
        self.check_keys(root, false);
        self.warn_of_misplaced(root, &ROOT, "a file");
        let domain = self.text(root, "domain");
        if domain.is_empty() {
            let message = "the domain of the file is empty";
            return self.fault(ProblemCode::R02, &root.span, message);
        }
        let span = root.get("domain").map_or(&root.span, |domain| &domain.span);
        if let Some(other) = self.places.get(&domain).map(Span::short)
            && !self.settings.merge_domains
        {
            let message = format!("duplicate domain {domain:?}, which is that of {other}");
            return self.fault(ProblemCode::R03, span, message);
        }
        self.places
            .entry(domain.clone())
            .or_insert_with(|| span.clone());
        let mut level = self.rules.domains.remove(&domain).unwrap_or_default();
        self.domain.clone_from(&domain);
        self.level(&mut level, &domain, root);
        self.rules.domains.insert(domain, level);
    }

    /// Checks of all keys and values, at any level.
    fn check_keys(&mut self, table: &Node, is_limit: bool) {
        report_duplicates(table.entries(), &mut self.report);
        for entry in table.entries() {
            let NodeEntry {
                key,
                key_span,
                value,
                ..
            } = entry;
            if type_of_key(entry) != YamlType::Text {
                let message = format!("the key {key} is not a text");
                self.fault(ProblemCode::R02, key_span, message);
                continue;
            }
            let groups = [&ROOT[..], &DESCRIPTOR, &RATE_LIMIT, &REPLACES];
            let is_extension = is_limit && EXTENSIONS.contains(&key.as_str());
            let mut groups = groups.iter();
            if is_extension && self.settings.strict {
                let message = format!("{key:?}, which Envoy's reference service does not know");
                self.fault(ProblemCode::R02, key_span, message);
            } else if !is_extension && !groups.any(|group| group.contains(&key.as_str())) {
                let message = format!("unknown key {key:?}");
                self.fault(ProblemCode::R02, key_span, message);
            }
            if key != "metadata" {
                self.check_value(value, key == "rate_limit");
            }
        }
    }

    fn check_value(&mut self, value: &Node, is_limit: bool) {
        match &value.value {
            NodeValue::Table(_) => self.check_keys(value, is_limit),
            NodeValue::List(items) => {
                for item in items {
                    match item.value {
                        NodeValue::Table(_) => self.check_keys(item, false),
                        _ => {
                            let message = "a list of something other than tables";
                            self.fault(ProblemCode::R01, &item.span, message);
                        }
                    }
                }
            }
            NodeValue::Scalar(scalar) => {
                if let YamlType::Number(_) = type_of(scalar) {
                    let message = format!(
                        "{} is not a whole number; quotes make a text of it",
                        scalar.text
                    );
                    self.fault(ProblemCode::R01, &value.span, message);
                }
            }
        }
    }

    /// Reads the descriptors of a table.
    fn level(&mut self, level: &mut Level, path: &str, table: &Node) {
        let descriptors = self.list(table, "descriptors");
        let keys = keys(descriptors);
        let first = |node: &Node| {
            node.get("key")
                .map_or_else(|| node.span.clone(), |key| key.span.clone())
        };
        for node in tables(descriptors) {
            let key = self.text(node, "key");
            if key.is_empty() {
                self.fault(
                    ProblemCode::R02,
                    &node.span,
                    "the key of the descriptor is empty",
                );
                continue;
            }
            let value = self.text(node, "value");
            if value.is_empty() {
                self.warn_of_prefix(&keys, &key, &first(node));
            }
            let text = match value.as_str() {
                "" => key.clone(),
                value => format!("{key}_{value}"),
            };
            let path = format!("{path}.{text}");
            if level.descriptors.contains_key(&text) {
                let message = format!(
                    "duplicate descriptor composite key {path:?}: a key and a value are looked up \
                     with an underscore between them"
                );
                self.fault(ProblemCode::R03, &first(node), message);
                continue;
            }
            self.keys.push(key);
            let descriptor = self.descriptor(node, &text, &path);
            self.keys.pop();
            level.wildcards.extend(Wildcard::new(&text));
            level.descriptors.insert(text, descriptor);
        }
    }

    /// Warns about a key that entries of another key match as well.
    fn warn_of_prefix(&mut self, siblings: &HashSet<&str>, key: &str, span: &Span) {
        for (at, _) in key.match_indices('_') {
            let (other, value) = (&key[..at], &key[at + 1..]);
            if siblings.contains(other) {
                let message = format!(
                    "{key:?} is also what {other:?} with the value {value:?} is looked up as, and \
                     limits that"
                );
                self.fault(ProblemCode::W31, span, message);
            }
        }
    }

    fn descriptor(&mut self, node: &Node, text: &str, path: &str) -> Descriptor {
        self.warn_of_misplaced(node, &DESCRIPTOR, "a descriptor");
        let share = self.truth(node, "share_threshold");
        if share && !text.contains('*') {
            let message = format!("share_threshold needs a pattern with \"*\"; {text:?} has none");
            self.fault(ProblemCode::R04, &node.span, message);
        }
        let table = node.get("metadata");
        let metadata = table.and_then(|table| metadata(table, &mut self.report));
        // These keys are checked even without a limit.
        let modes = OF_LIMITS.map(|key| self.truth(node, key));
        let [shadow, quota, detailed_metric] = modes;
        let limit = self.limit(node);
        if limit.is_none() {
            self.warn_of_modes(node, modes);
        }
        let limit = limit.map(|limit| Limit {
            shadow,
            quota,
            detailed_metric,
            ..limit
        });
        if let Some(limit) = &limit {
            self.warn_of_order(&limit.span);
        }
        let mut descriptor = Descriptor {
            limit,
            below: Level::default(),
            value_to_metric: self.truth(node, "value_to_metric"),
            shared: share.then(|| text.to_owned()),
            metadata,
        };
        self.level(&mut descriptor.below, path, node);
        descriptor
    }

    fn limit(&mut self, node: &Node) -> Option<Limit> {
        let limit = self.table(node, "rate_limit")?;
        self.warn_of_misplaced(limit, &RATE_LIMIT, "a rate_limit");
        let unlimited = self.truth(limit, "unlimited");
        let unit = self.unit(limit, unlimited);
        let name = self.text(limit, "name");
        let replaces = self.replaces(limit, &name);
        let requests = self.number(limit, "requests_per_unit").unwrap_or(0);
        let unit_multiplier = self.unit_multiplier(limit, unit);
        let period = unit.map_or(0, Unit::seconds) * u64::from(unit_multiplier.unwrap_or(1));
        self.rules.limits += 1;
        Some(Limit {
            requests,
            unit,
            unit_multiplier,
            quota_of_its_own: self.quota(limit, requests, period),
            name,
            replaces,
            shadow: false,
            quota: false,
            detailed_metric: false,
            span: limit.span.clone(),
        })
    }

    fn unit(&mut self, limit: &Node, unlimited: bool) -> Option<Unit> {
        let text = self.text(limit, "unit");
        let unit = Unit::named(&text);
        let span = limit.get("unit").map_or(&limit.span, |unit| &unit.span);
        match unit {
            Some(_) if unlimited => {
                let message = "should not specify rate limit unit when unlimited";
                self.fault(ProblemCode::R04, span, message);
            }
            None if !unlimited => {
                let message = format!(
                    "invalid rate limit unit {text:?}; there are second, minute, hour, day, week, \
                     month and year"
                );
                self.fault(ProblemCode::R04, span, message);
            }
            _ => {}
        }
        unit
    }

    fn replaces(&mut self, limit: &Node, own: &str) -> Vec<String> {
        let mut names = Vec::new();
        for replaced in tables(self.list(limit, "replaces")) {
            self.warn_of_misplaced(replaced, &REPLACES, "an entry of replaces");
            let name = self.text(replaced, "name");
            let message = match name.as_str() {
                "" => "should not have an empty replaces entry",
                name if name == own => "replaces should not contain name of same descriptor",
                _ => {
                    names.push(name);
                    continue;
                }
            };
            self.fault(ProblemCode::R04, &replaced.span, message);
        }
        names
    }
}

/// The keys of descriptors. A set, since a level may have thousands of them.
fn keys(descriptors: &[Node]) -> HashSet<&str> {
    let keys = descriptors
        .iter()
        .filter_map(|node| match &node.get("key")?.value {
            NodeValue::Scalar(scalar) => Some(text_or_empty(scalar)),
            _ => None,
        });
    keys.collect()
}
