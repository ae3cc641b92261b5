//! Files as rules: what is refused, and what is only strange.

mod extensions;
mod fields;
mod parser;
mod parts;

use std::{collections::HashMap, sync::Arc};

use tower_ratelimit::rules::{
    RulesError,
    source::{
        Node, NodeEntry, NodeValue, ProblemCode, Report, SourceText, Spot, TreeBounds, read_yaml,
        taken,
    },
};

use self::{extensions::EXTENSIONS, fields::tables, parser::RulesParser, parts::parts};
use super::{
    metadata::metadata,
    rules::{Builder, Descriptor, Level, Limit, Rules},
    typed::{Typed, text_or_empty, typed, typed_key},
    wildcard::Wildcard,
};
use crate::messages::Unit;

/// The longest file that is read.
const MAX_FILE_BYTES: usize = 32 << 20;

/// Files of the reference grow large, and a descriptor in another takes two levels.
const BOUNDS: TreeBounds = TreeBounds {
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

const RATE_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];

const REPLACES: [&str; 1] = ["name"];

pub(super) fn parse(
    texts: impl Iterator<Item = (String, String)>,
    settings: &Builder,
) -> Result<Rules, RulesError> {
    let mut parser = RulesParser {
        settings,
        domain: String::new(),
        rules: Rules::default(),
        places: HashMap::new(),
        report: Report::default(),
    };
    for (name, text) in texts {
        let source = Arc::new(SourceText::new(name, text));
        parser.file(&source);
        parser
            .rules
            .files
            .push((source.name.clone(), source.sha256()));
    }
    let RulesParser { rules, report, .. } = parser;
    let warnings = report.finish()?;
    if rules.domains.is_empty() {
        let message = "there is not a single domain, so nothing would be limited";
        return Err(RulesError::unreadable(message.to_owned()));
    }
    Ok(Rules { warnings, ..rules })
}

impl RulesParser<'_> {
    fn file(&mut self, source: &Arc<SourceText>) {
        let spot = |start, end| Spot::new(source, start, end);
        if source.text.len() > MAX_FILE_BYTES {
            let message = format!("the file has more than {MAX_FILE_BYTES} bytes; split it");
            return self.tell(ProblemCode::R01, &spot(0, 0), message);
        }
        let parts = parts(&source.text);
        for (at, (start, end)) in parts.iter().copied().enumerate() {
            if at == 1 {
                let message = "a further domain in the file: Envoy's reference service reads one of \
                               a file, so give each its own";
                self.tell(ProblemCode::W33, &spot(start, start), message);
            }
            match read_yaml(source, start..end, BOUNDS, &mut self.report) {
                Ok(Some(root)) => self.root(&root),
                Ok(None) if parts.len() > 1 => {}
                Ok(None) => self.tell(ProblemCode::R02, &spot(0, 0), "the file has no domain"),
                Err(problem) => self.report.add(problem),
            }
        }
    }

    fn root(&mut self, root: &Node) {
        if !matches!(root.value, NodeValue::Table(_)) {
            let message = "a file is a table with a domain and descriptors";
            return self.tell(ProblemCode::R01, &root.spot, message);
        }
        if let Some(rules) = root.get("rules")
            && root.get("domain").is_none()
        {
            let message = "these are rules of requests, not of descriptors: `tower-ratelimit gateway` \
                           takes them, and `serve` with --auth-rules";
            return self.tell(ProblemCode::R02, &rules.spot, message);
        }
        self.check_keys(root, false);
        self.warn_of_misplaced(root, &ROOT, "a file");
        let domain = self.text(root, "domain");
        if domain.is_empty() {
            let message = "the domain of the file is empty";
            return self.tell(ProblemCode::R02, &root.spot, message);
        }
        let spot = root.get("domain").map_or(&root.spot, |domain| &domain.spot);
        if let Some(other) = self.places.get(&domain).map(Spot::short)
            && !self.settings.merge_domains
        {
            let message = format!("duplicate domain {domain:?}, which is that of {other}");
            return self.tell(ProblemCode::R03, spot, message);
        }
        self.places
            .entry(domain.clone())
            .or_insert_with(|| spot.clone());
        let mut level = self.rules.domains.remove(&domain).unwrap_or_default();
        self.domain.clone_from(&domain);
        self.level(&mut level, &domain, root);
        self.rules.domains.insert(domain, level);
    }

    /// Checks that hold for all keys and values, wherever they stand.
    fn check_keys(&mut self, table: &Node, is_limit: bool) {
        taken(table.entries(), &mut self.report);
        for entry in table.entries() {
            let NodeEntry {
                key,
                key_spot,
                value,
                ..
            } = entry;
            if typed_key(entry) != Typed::Text {
                let message = format!("the key {key} is not a text");
                self.tell(ProblemCode::R02, key_spot, message);
                continue;
            }
            let groups = [&ROOT[..], &DESCRIPTOR, &RATE_LIMIT, &REPLACES];
            let is_extension = is_limit && EXTENSIONS.contains(&key.as_str());
            let mut groups = groups.iter();
            if is_extension && self.settings.strict {
                let message = format!("{key:?}, which Envoy's reference service does not know");
                self.tell(ProblemCode::R02, key_spot, message);
            } else if !is_extension && !groups.any(|group| group.contains(&key.as_str())) {
                let message = format!("unknown key {key:?}");
                self.tell(ProblemCode::R02, key_spot, message);
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
                            self.tell(ProblemCode::R01, &item.spot, message);
                        }
                    }
                }
            }
            NodeValue::Scalar(scalar) => {
                if let Typed::Number(_) = typed(scalar) {
                    let message = format!(
                        "{} is not a whole number; quotes make a text of it",
                        scalar.text
                    );
                    self.tell(ProblemCode::R01, &value.spot, message);
                }
            }
        }
    }

    fn warn_of_misplaced(&mut self, table: &Node, known: &[&str], place: &str) {
        let groups = [&ROOT[..], &DESCRIPTOR, &RATE_LIMIT, &REPLACES];
        for NodeEntry { key, key_spot, .. } in table.entries() {
            let key = key.as_str();
            if !known.contains(&key) && groups.iter().any(|group| group.contains(&key)) {
                let message = format!("{key:?} means nothing in {place}, and is ignored");
                self.tell(ProblemCode::W32, key_spot, message);
            }
        }
    }

    /// Reads the descriptors of a table.
    fn level(&mut self, level: &mut Level, path: &str, table: &Node) {
        let descriptors = self.list(table, "descriptors");
        let first = |node: &Node| {
            node.get("key")
                .map_or_else(|| node.spot.clone(), |key| key.spot.clone())
        };
        for node in tables(descriptors) {
            let key = self.text(node, "key");
            if key.is_empty() {
                self.tell(
                    ProblemCode::R02,
                    &node.spot,
                    "the key of the descriptor is empty",
                );
                continue;
            }
            let value = self.text(node, "value");
            if value.is_empty() {
                self.warn_of_prefix(descriptors, &key, &first(node));
            }
            let text = match value.as_str() {
                "" => key,
                value => format!("{key}_{value}"),
            };
            let path = format!("{path}.{text}");
            if level.descriptors.contains_key(&text) {
                let message = format!(
                    "duplicate descriptor composite key {path:?}: a key and a value are looked up \
                     with an underscore between them"
                );
                self.tell(ProblemCode::R03, &first(node), message);
                continue;
            }
            let descriptor = self.descriptor(node, &text, &path);
            level.wildcards.extend(Wildcard::new(&text));
            level.descriptors.insert(text, descriptor);
        }
    }

    /// Warns of a key alone that entries of another key match, too.
    fn warn_of_prefix(&mut self, siblings: &[Node], key: &str, spot: &Spot) {
        for (at, _) in key.match_indices('_') {
            let (other, value) = (&key[..at], &key[at + 1..]);
            let mut keys = siblings
                .iter()
                .filter_map(|node| match &node.get("key")?.value {
                    NodeValue::Scalar(scalar) => Some(text_or_empty(scalar)),
                    _ => None,
                });
            if keys.any(|sibling| sibling == other) {
                let message = format!(
                    "{key:?} is also what {other:?} with the value {value:?} is looked up as, and \
                     limits that"
                );
                self.tell(ProblemCode::W31, spot, message);
            }
        }
    }

    fn descriptor(&mut self, node: &Node, text: &str, path: &str) -> Descriptor {
        self.warn_of_misplaced(node, &DESCRIPTOR, "a descriptor");
        let share = self.truth(node, "share_threshold");
        if share && !text.contains('*') {
            let message = format!("share_threshold needs a pattern with \"*\"; {text:?} has none");
            self.tell(ProblemCode::R04, &node.spot, message);
        }
        let table = node.get("metadata");
        let metadata = table.and_then(|table| metadata(table, &mut self.report));
        // Also where there is no limit that they would be about.
        let modes = ["shadow_mode", "quota_mode", "detailed_metric"];
        let [shadow, quota, detailed_metric] = modes.map(|key| self.truth(node, key));
        let limit = self.limit(node).map(|limit| Limit {
            shadow,
            quota,
            detailed_metric,
            ..limit
        });
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
            spot: limit.spot.clone(),
        })
    }

    fn unit(&mut self, limit: &Node, unlimited: bool) -> Option<Unit> {
        let text = self.text(limit, "unit");
        let unit = Unit::named(&text);
        let spot = limit.get("unit").map_or(&limit.spot, |unit| &unit.spot);
        match unit {
            Some(_) if unlimited => {
                let message = "should not specify rate limit unit when unlimited";
                self.tell(ProblemCode::R04, spot, message);
            }
            None if !unlimited => {
                let message = format!(
                    "invalid rate limit unit {text:?}; there are second, minute, hour, day, week, \
                     month and year"
                );
                self.tell(ProblemCode::R04, spot, message);
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
            self.tell(ProblemCode::R04, &replaced.spot, message);
        }
        names
    }
}
