//! Reads rule files: the parser, its faults and its warnings.

use std::{
    collections::{HashMap, HashSet, hash_map},
    fs, io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use tower_ratelimit::Quota;
use tower_ratelimit_rulefile::{
    ProblemCode, Report, RulesError, SourceText, Span,
    document::{
        DocumentLimits, Node, NodeEntry, NodeValue, read_yaml, report_duplicates, report_manifest,
    },
};

use super::{
    rules::{Builder, Descriptor, Level, Limit, Rules},
    yaml11_types::{YamlType, metadata, text_or_empty, type_of, type_of_key},
};
use crate::protobuf_messages::Unit;
use tower_ratelimit_service::rule_file_polling::FilesOf;

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

/// The values of rules that are no file.
pub(crate) struct RulesDocument {
    pub(crate) name: String,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) root: Node,
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
            if text.contains('*') {
                level.wildcards.push(text.clone());
            }
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

/// Parses files, one after the other.
struct RulesParser<'s> {
    settings: &'s Builder,
    /// The current domain.
    domain: String,
    rules: Rules,
    /// The keys of the path to the current descriptor.
    keys: Vec<String>,
    /// By domain and sorted keys: the keys of the first limit with them, in its order, and its place.
    orders: HashMap<(String, Vec<String>), (Vec<String>, Span)>,
    /// The position of each domain.
    places: HashMap<String, Span>,
    report: Report,
}

impl<'s> RulesParser<'s> {
    fn new(settings: &'s Builder, report: Report) -> Self {
        Self {
            settings,
            domain: String::new(),
            rules: Rules::default(),
            keys: Vec::new(),
            orders: HashMap::new(),
            places: HashMap::new(),
            report,
        }
    }

    /// The rules, if there is no fault.
    fn finish(self) -> Result<Rules, RulesError> {
        let warnings = self.report.finish()?;
        Ok(Rules {
            warnings,
            ..self.rules
        })
    }

    fn fault(&mut self, code: ProblemCode, span: &Span, message: impl Into<String>) {
        self.report.push(code, span, message);
    }
}

impl RulesParser<'_> {
    fn text(&mut self, table: &Node, key: &str) -> String {
        let Some(node) = given(table, key) else {
            return String::new();
        };
        if let NodeValue::Scalar(scalar) = &node.value {
            return scalar.text.clone();
        }
        self.misfit(node, key, "a text");
        String::new()
    }

    fn truth(&mut self, table: &Node, key: &str) -> bool {
        let Some(node) = given(table, key) else {
            return false;
        };
        if let Some(YamlType::Truth(truth)) = of_node(node) {
            return truth;
        }
        self.misfit(node, key, "true or false");
        false
    }

    /// The number; `None` if it is absent.
    fn number(&mut self, table: &Node, key: &str) -> Option<u32> {
        let node = given(table, key)?;
        let number = match of_node(node) {
            Some(YamlType::Whole(number)) => u32::try_from(number).ok(),
            // Reported already.
            Some(YamlType::Number(_)) => return None,
            _ => None,
        };
        if number.is_none() {
            let message = format!("{key} is a whole number from 0 to {}", u32::MAX);
            self.fault(ProblemCode::R04, &node.span, message);
        }
        number
    }

    fn list<'n>(&mut self, table: &'n Node, key: &str) -> &'n [Node] {
        let Some(node) = given(table, key) else {
            return &[];
        };
        if let NodeValue::List(items) = &node.value {
            return items;
        }
        self.misfit(node, key, "a list");
        &[]
    }

    fn table<'n>(&mut self, table: &'n Node, key: &str) -> Option<&'n Node> {
        let node = given(table, key)?;
        if let NodeValue::Table(_) = &node.value {
            return Some(node);
        }
        self.misfit(node, key, "a table");
        None
    }

    fn misfit(&mut self, node: &Node, key: &str, kind: &str) {
        self.fault(ProblemCode::R01, &node.span, format!("{key} is {kind}"));
    }
}

/// The value of a key, unless it is null, which counts as absent.
fn given<'n>(table: &'n Node, key: &str) -> Option<&'n Node> {
    let node = table.get(key);
    node.filter(|node| of_node(node) != Some(YamlType::Null))
}

/// The items that are tables. Faults of the others are reported already.
fn tables(items: &[Node]) -> impl Iterator<Item = &Node> {
    let is_table = |item: &&Node| matches!(item.value, NodeValue::Table(_));
    items.iter().filter(is_table)
}

/// The type of a scalar.
fn of_node(node: &Node) -> Option<YamlType> {
    match &node.value {
        NodeValue::Scalar(scalar) => Some(type_of(scalar)),
        _ => None,
    }
}

impl RulesParser<'_> {
    /// Warns about a limit at the current path if another one has its keys in another order: a quota's bucket has no
    /// order.
    fn warn_of_order(&mut self, span: &Span) {
        if self.keys.len() < 2 {
            return;
        }
        let mut sorted = self.keys.clone();
        sorted.sort_unstable();
        let (first, place) = match self.orders.entry((self.domain.clone(), sorted)) {
            hash_map::Entry::Vacant(entry) => {
                entry.insert((self.keys.clone(), span.clone()));
                return;
            }
            hash_map::Entry::Occupied(entry) => entry.get().clone(),
        };
        if first != self.keys {
            let message = format!(
                "the keys {} are those of the limit at {} in another order: with --rlqs a bucket with these keys has no \
                 order, and one limit only",
                self.keys.join(", "),
                place.short()
            );
            self.fault(ProblemCode::W34, span, message);
        }
    }

    /// Warns about keys of other tables.
    fn warn_of_misplaced(&mut self, table: &Node, known: &[&str], place: &str) {
        let groups = [&ROOT[..], &DESCRIPTOR, &RATE_LIMIT, &REPLACES];
        for NodeEntry { key, key_span, .. } in table.entries() {
            let key = key.as_str();
            if !known.contains(&key) && groups.iter().any(|group| group.contains(&key)) {
                let message = format!("{key:?} means nothing in {place}, and is ignored");
                self.report.push(ProblemCode::W32, key_span, message);
            }
        }
    }

    /// Warns about modes that are on in a descriptor without a limit: the levels below do not inherit them.
    fn warn_of_modes(&mut self, descriptor: &Node, modes: [bool; 3]) {
        let on = OF_LIMITS.iter().zip(modes).filter(|(_, is_on)| *is_on);
        for (name, _) in on {
            let mut entries = descriptor.entries().iter();
            if let Some(entry) = entries.find(|entry| entry.key == *name) {
                let message = format!(
                    "{name:?} means nothing in a descriptor without a rate_limit, and is ignored; limits below it need \
                     their own"
                );
                self.report.push(ProblemCode::W32, &entry.key_span, message);
            }
        }
    }
}

/// The ranges of the documents of a text. A line of dashes, or a further unindented `domain:`, begins the next.
fn parts(text: &str) -> Vec<(usize, usize)> {
    let (mut parts, mut start, mut at, mut has_domain) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let dashes = line.strip_prefix("---");
        let is_end =
            dashes.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        let is_domain = line.starts_with("domain:");
        if is_end || is_domain && has_domain {
            parts.push((start, at));
            (start, has_domain) = (at, false);
        }
        has_domain |= is_domain;
        at += line.len();
    }
    parts.push((start, at));
    let is_empty = |line: &str| {
        let line = line.strip_prefix("---").unwrap_or(line).trim_start();
        line.is_empty() || line.starts_with('#')
    };
    parts.retain(|(start, end)| !text[*start..*end].lines().all(is_empty));
    if parts.is_empty() {
        vec![(0, text.len())]
    } else {
        parts
    }
}

/// The keys of a limit that the reference does not know.
const EXTENSIONS: [&str; 5] = ["unit_multiplier", "algorithm", "burst", "slices", "soft"];

impl RulesParser<'_> {
    /// The number of units in a period, if the limit has one.
    fn unit_multiplier(&mut self, limit: &Node, unit: Option<Unit>) -> Option<u32> {
        let times = self.number(limit, "unit_multiplier")?;
        let period = Duration::from_secs(unit.map_or(1, Unit::seconds) * u64::from(times));
        let window = Quota::per(1, period).fixed_window().uncapped();
        let fault = match (times, window.check()) {
            (0, _) => "unit_multiplier is at least 1".to_owned(),
            (_, Err(fault)) => fault.to_string(),
            (_, Ok(())) => return Some(times),
        };
        let span = &limit.get("unit_multiplier").unwrap_or(limit).span;
        self.fault(ProblemCode::R04, span, fault);
        None
    }

    /// The quota of a limit that is no fixed window; also `None` after a fault.
    fn quota(&mut self, limit: &Node, requests: u32, seconds: u64) -> Option<Quota> {
        let [burst, slices, soft] = ["burst", "slices", "soft"].map(|key| self.number(limit, key));
        let quota = Quota::per(u64::from(requests), Duration::from_secs(seconds));
        let algorithm = self.text(limit, "algorithm");
        let mut quota = match algorithm.as_str() {
            "" | "fixed_window" if (burst, slices, soft) == (None, None, None) => return None,
            "" | "fixed_window" => quota.fixed_window(),
            "token_bucket" => quota.token_bucket(),
            "sliding_window" => quota.sliding_window(),
            "sliding_log" => quota.sliding_log(),
            _ => {
                let message = format!(
                    "unknown algorithm {algorithm:?}; there are fixed_window, token_bucket, \
                     sliding_window and sliding_log"
                );
                let span = &limit.get("algorithm").unwrap_or(limit).span;
                self.fault(ProblemCode::R04, span, message);
                return None;
            }
        };
        if let Some(burst) = burst {
            quota = quota.burst(u64::from(burst));
        }
        if let Some(slices) = slices {
            quota = quota.slices(slices);
        }
        if let Some(percent) = soft {
            quota = quota.soft(percent);
        }
        // Without a unit there is another fault, or no limit.
        let fault = quota.check().err().filter(|_| seconds > 0);
        if let Some(fault) = fault {
            self.fault(ProblemCode::R04, &limit.span, fault.to_string());
            return None;
        }
        Some(quota).filter(|_| seconds > 0)
    }
}

impl Builder {
    /// Whether several files may have parts of one domain. Defaults to false: a repeated domain is a fault.
    pub const fn merge_domains(mut self, merge: bool) -> Self {
        self.merge_domains = merge;
        self
    }

    /// Whether extensions of Envoy's reference service are faults: `unit_multiplier`, `algorithm`, `burst`, `slices`
    /// and `soft` of a limit. Defaults to false.
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// The files of directories to read. Defaults to [`FilesOf::Rules`].
    pub const fn files(mut self, files: FilesOf) -> Self {
        self.files = files;
        self
    }

    /// Parses texts, each with the name of its file. One fault rejects all of them.
    ///
    /// # Errors
    ///
    /// All faults of the texts, or that they have no domain.
    pub fn parse<N: Into<String>, T: Into<String>>(
        &self,
        texts: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Rules, RulesError> {
        let mut parser = RulesParser::new(self, Report::default());
        for (name, text) in texts {
            let source = Arc::new(SourceText::new(name.into(), text.into()));
            parser.file(&source);
            let file = (source.name.clone(), source.sha256());
            parser.rules.files.push(file);
        }
        let rules = parser.finish()?;
        if rules.domains.is_empty() {
            let message = "there is not a single domain, so nothing would be limited";
            return Err(RulesError::unreadable(message.to_owned()));
        }
        Ok(rules)
    }

    /// Reads documents that are no files, after the faults in `report`. Without a document there is no limit.
    ///
    /// # Errors
    ///
    /// All faults of the documents and of `report`.
    pub(crate) fn read_documents(
        &self,
        documents: Vec<RulesDocument>,
        report: Report,
    ) -> Result<Rules, RulesError> {
        let mut parser = RulesParser::new(self, report);
        for document in documents {
            parser.root(&document.root);
            parser.rules.files.push((document.name, document.sha256));
        }
        parser.finish()
    }

    /// Reads files, and [those](Self::files) of directories in the order of their names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, all faults of the files, and when there is no file at all: a directory that is
    /// still empty does not mean that nothing is limited.
    pub fn read<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Rules, RulesError> {
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        for path in paths {
            let path = path.as_ref();
            let unreadable = |error: io::Error| {
                RulesError::unreadable(format!("{} cannot be read: {error}", path.display()))
            };
            let listed = self.files.list(path).map_err(unreadable)?;
            others.extend(listed.others);
            for file in listed.files {
                let text = fs::read_to_string(&file).map_err(unreadable)?;
                texts.push((file.display().to_string(), text));
            }
        }
        if texts.is_empty() {
            let paths: Vec<String> = paths
                .iter()
                .map(|path| path.as_ref().display().to_string())
                .collect();
            let kind = match self.files {
                FilesOf::Rules => " (*.yaml, *.yml, *.json)",
                _ => "",
            };
            let message = format!("there is no rule file{kind} in {}", paths.join(", "));
            return Err(RulesError::unreadable(message));
        }
        let rules = self.parse(texts)?;
        Ok(Rules { others, ..rules })
    }
}
