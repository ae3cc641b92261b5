//! Compiles documents to rules: resolves names, and reads patterns, quotas and times.
//!
//! In: the texts of all files, and what the application registers in code (`Setup`). Out: one list of `Rule`s with the
//! settings for all, or every fault that was found, each with its place in a file.
//!
//! 1. This file has each text read to a document, and checks its form against the fields. Then it reads the settings,
//!    each of which one file may have, and the templates. Each field stands beside what reads it: a static that checks
//!    files, reads them, and writes the schema.
//! 2. `rules.rs` compiles the rules one by one: the match (`match_conditions.rs`), the key (`keys.rs`), quotas, tiers and
//!    schedules (`quotas.rs`), and what is charged by responses (`spend.rs`). A reader that meets a
//!    fault reports it and returns `None`, so that one pass shows all faults.
//! 3. `rule_references.rs` resolves the names of other rules last, since a rule may name one further down.
//! 4. `warnings.rs` looks for rules that are valid and probably not meant.
//!
//! Example: `quota: fast` and a template `fast: 10/second`. `quotas.rs` finds the name among the templates, and
//! reads the rate there. If the template has a fault, that is reported once, at the template.

pub(super) mod context;
mod keys;
mod match_conditions;
mod quotas;
mod rule_references;
mod rules;
mod spend;
mod warnings;

use std::{
    hash::{DefaultHasher, Hash},
    sync::Arc,
};

use http::HeaderName;
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    Format, Problem, ProblemCode, Report, RulesError, SourceText, Span,
    document::{self, Node},
    fields::{
        Field, Number, OneOf, Parsed,
        Shape::{List, Many, Map, NumberOfReader, Table as InTable, Text as AsText},
        Table, Tree, json_schema,
    },
    listed,
};

use self::{
    context::{Context, Setup, header_name},
    keys::DEFAULT_KEY,
    quotas::MAX_ALL_QUOTAS,
    rules::{HEADERS, ON_CHANGE, ON_MISSING_KEY},
    spend::PRICE,
};
use crate::{
    cors_origins::{self, CorsOrigins},
    key::RuleKey,
    request::RequestReading,
    rule::Rule,
};
use tower_ratelimit_client_ip::client_ip::{ClientIp, ClientIpHeader, IntoNetwork as _};
use tower_ratelimit_core::key::ip_prefix::IpPrefix;

static FILE: Table = Table::new(
    "the file",
    "Rate limits of tower-ratelimit.",
    &[
        &VERSION,
        &STORE,
        &CLIENT_IP,
        &CORS_ORIGINS,
        &PRICES,
        &DEFAULTS,
        &QUOTAS,
        &RULES,
    ],
)
.foreign(
    &["domain", "descriptors"],
    "a field of Envoy's rate limit service: `tower-ratelimit serve` and `envoy` take such files",
);

static VERSION: Field<Tree> = Field::tree(
    "version",
    NumberOfReader(1, 1),
    "Version of the format. Default: 1, the only one.",
);

static STORE: Field<Tree> = Field::table(
    "store",
    &STORE_TABLE,
    "Where counts are kept. An address of Redis and its password are never in this file: the application has them.",
);

static CLIENT_IP: Field<Tree> = Field::table(
    "client_ip",
    &CLIENT_IP_TABLE,
    "How a client's address is found. Default: the other end of the connection.",
);

static CORS_ORIGINS: Field<Parsed<Box<str>>> = Field::parsed(
    "cors_origins",
    Many(&AsText("https://app.example")),
    ProblemCode::R01,
    cors_origins::origin,
    "The origins of scripts in browsers, or `*` alone. Their preflight requests are not counted, and the gateway adds CORS fields to its denials. Default: none.",
);

static PRICES: Field<Tree> = Field::tree(
    "prices",
    Map(&InTable(&PRICE)),
    "The prices of models, in dollars for a million tokens, by a name with at most one `*`. The first that fits counts; `*` has to be among them.",
);

static DEFAULTS: Field<Tree> = Field::table(
    "defaults",
    &DEFAULTS_TABLE,
    "What rules mean that do not say otherwise.",
);

static QUOTAS: Field<Tree> = Field::tree(
    "quotas",
    Map(&quotas::QUOTAS),
    "Templates: quotas under a name that rules and tiers use. Each use counts for itself.",
);

static RULES: Field<Tree> = Field::tree(
    "rules",
    List(&InTable(&rules::RULE)),
    "The rules, looked at from the top. Every limit that matches applies; all are charged, or none.",
);

static STORE_TABLE: Table =
    Table::new("store", "Where counts are kept.", &[&MAX_KEYS, &ON_FAILURE]);

/// The decisions while Redis does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStoreFailure {
    Local,
    Allow,
    Deny,
}

static FAILURES: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
];

static MAX_KEYS: Field<Number> = Field::number(
    "max_keys",
    1..=1 << 32,
    "How many keys are remembered. Default: the application's.",
);

static ON_FAILURE: Field<OneOf<OnStoreFailure>> = Field::one_of(
    "on_failure",
    &FAILURES,
    "What happens while Redis does not answer: `local` counts in this process, `allow` lets pass, `deny` answers 503. Default: local.",
);

static CLIENT_IP_TABLE: Table = Table::new(
    "client_ip",
    "How a client's address is found.",
    &[&TRUST, &CLIENT_IP_HEADER, &IPV6_PREFIX],
);

static TRUST: Field<Parsed<IpNet>> = Field::parsed(
    "trust",
    Many(&AsText("10.0.0.0/8")),
    ProblemCode::R10,
    trusted_network,
    "Addresses and networks of your proxies; only what these write is believed. Default: none, and no header is read.",
);

static CLIENT_IP_HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-forwarded-for"),
    ProblemCode::R01,
    header_name,
    "The one header that your proxies write: `x-forwarded-for`, `forwarded`, or one that holds a single address. Default: x-forwarded-for.",
);

static IPV6_PREFIX: Field<Number> = Field::number(
    "ipv6_prefix",
    1..=128,
    "How many bits of an IPv6 address make a key. Default: 64.",
);

/// Values of rules that have none of their own.
static DEFAULTS_TABLE: Table = Table::new(
    "defaults",
    "What rules mean that do not say otherwise.",
    &[&DEFAULT_KEY, &ON_MISSING_KEY, &HEADERS, &ON_CHANGE],
);

fn trusted_network(text: &str) -> Result<IpNet, String> {
    text.into_network().map_err(|error| error.to_string())
}

/// The JSON Schema (2020-12) of rule files, for editors, which then complete and underline.
///
/// It has the fields and the kinds of their values. Names, patterns, quotas and times are checked when a file is read.
pub fn schema() -> String {
    json_schema("Rule files of tower-ratelimit", &FILE)
}

const FORMAT_VERSION: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StoreSettings {
    pub(crate) max_keys: Option<usize>,
    pub(crate) on_failure: Option<OnStoreFailure>,
}

impl StoreSettings {
    fn of(node: &Node) -> Self {
        let max_keys = MAX_KEYS.of(node);
        Self {
            max_keys: max_keys.and_then(|keys| usize::try_from(keys).ok()),
            on_failure: ON_FAILURE.of(node),
        }
    }
}

pub(crate) type SourceFile = (Arc<SourceText>, Format);

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rules: Vec<Rule>,
    pub(crate) reading: RequestReading,
    pub(crate) store: StoreSettings,
    pub(crate) warnings: Vec<Problem>,
    /// The limits that are left out: the name of a rule, and a field of it.
    pub(crate) left_out: Vec<(Box<str>, &'static str)>,
}

impl Compiled {
    pub(crate) fn keep_requests_only(&mut self) {
        for rule in &mut self.rules {
            let fields = rule.keep_requests_only();
            let left_out = fields.map(|field| (rule.name.clone(), field));
            self.left_out.extend(left_out);
        }
    }
}

/// The most rules: their positions are numbers of 16 bits.
const MAX_RULES: usize = 10_000;

/// Compiles all files, one after the other, to one list of rules.
///
/// # Errors
///
/// All faults, up to twenty.
pub(crate) fn compile(files: &[SourceFile], setup: &Setup) -> Result<Compiled, RulesError> {
    let (roots, report) = read_all(files, setup.empty);
    let mut context = Context {
        setup,
        report,
        templates: Vec::new(),
        reading: RequestReading {
            client_ip: ClientIp::behind(std::iter::empty::<&str>()),
            cors_origins: CorsOrigins::default(),
        },
        prefix: IpPrefix::new(),
        defaults: None,
        default_key: None,
        money: None,
        quotas: 0,
    };
    let store = context.settings(&roots);
    let (rules, all_rules) = context.rules(&roots);
    if context.quotas > MAX_ALL_QUOTAS {
        // Templates make many of a small file.
        let message = format!("more than {MAX_ALL_QUOTAS} quotas, each use of a template counted");
        let problem = Problem::without_place(ProblemCode::R01, message);
        context.report.add(problem);
    }
    if context.report.faults() == 0 && rules.is_empty() && !setup.empty {
        context.report.add(no_rules(files));
    }
    let rules = rule_references::link(rules, &all_rules, &mut context);
    warnings::warn(&rules, &all_rules, &mut context);
    Ok(Compiled {
        rules,
        reading: context.reading,
        store,
        warnings: context.report.finish()?,
        left_out: Vec::new(),
    })
}

fn no_rules(files: &[SourceFile]) -> Problem {
    let message = "there is not a single rule";
    match files {
        [] => Problem::without_place(ProblemCode::R02, message),
        [(source, _)] => Problem::new(ProblemCode::R02, &Span::new(source, 0, 0), message),
        _ => {
            let names = listed(files.iter().map(|(source, _)| &*source.name));
            Problem::without_place(ProblemCode::R02, format!("{message} in {names}"))
        }
    }
}

/// The roots of all files that have one, and the problems of their form. Of several files, one without a rule and
/// without a setting is a fault unless `accept_empty`: a copy that is slow or has failed leaves such a file, and its
/// limits would end in silence.
fn read_all(files: &[SourceFile], accept_empty: bool) -> (Vec<Node>, Report) {
    // `rules: []` is no accident.
    let has_content = |root: &Node| {
        let mut entries = root.entries().iter();
        entries.any(|entry| entry.key != VERSION.name())
    };
    let mut report = Report::default();
    let mut roots: Vec<Node> = Vec::new();
    for (source, format) in files {
        let faults = report.faults();
        let root = document::read(source, *format, &mut report);
        let root = root.filter(|root| !document::report_manifest(root, &mut report));
        if let Some(root) = &root {
            FILE.check(root, &mut report);
        }
        let is_empty = report.faults() == faults && !root.as_ref().is_some_and(has_content);
        if is_empty && files.len() > 1 && !accept_empty {
            let message = "there is no rule in this file, and no setting for the rules of others";
            report.push(ProblemCode::R02, &Span::new(source, 0, 0), message);
        }
        roots.extend(root);
    }
    (roots, report)
}

impl<'c> Context<'c> {
    /// Reads the settings for all rules. Each may stand in one file only.
    fn settings(&mut self, roots: &'c [Node]) -> StoreSettings {
        for node in roots.iter().filter_map(|root| VERSION.node(root)) {
            if let Some(version) = node.number().filter(|version| *version != FORMAT_VERSION) {
                let message = format!(
                    "version {version} of the format is not known; this program reads {FORMAT_VERSION}"
                );
                self.report(ProblemCode::R11, &node.span, message);
            }
        }
        let store = self.only(roots, &STORE).map(StoreSettings::of);
        if let Some(client_ip) = self.only(roots, &CLIENT_IP) {
            self.read_client_ip(client_ip);
        }
        if self.only(roots, &CORS_ORIGINS).is_some() {
            let mut roots = roots.iter();
            let root = roots.find(|root| CORS_ORIGINS.node(root).is_some());
            self.reading.cors_origins = root
                .map(|root| self.read_cors_origins(root))
                .unwrap_or_default();
        }
        self.defaults = self.only(roots, &DEFAULTS);
        if let Some(prices) = self.only(roots, &PRICES) {
            self.money = self.prices(prices);
        }
        for templates in roots.iter().filter_map(|root| QUOTAS.of(root)) {
            self.read_templates(templates);
        }
        self.check_templates();
        self.default_key = match self.defaults.and_then(|all| DEFAULT_KEY.of(all)) {
            Some(node) => self.key(node),
            None => Some(RuleKey::extractor(self.reading.client_ip.clone())),
        };
        store.unwrap_or_default()
    }

    fn read_client_ip(&mut self, node: &'c Node) {
        if let Some(bits) = IPV6_PREFIX.of(node) {
            self.prefix = IpPrefix::new().v6(u8::try_from(bits).unwrap_or(128));
        }
        let networks = TRUST.all(node, &mut self.report).unwrap_or_default();
        if let Some(trust) = TRUST.node(node) {
            match ClientIp::try_behind(networks.iter()) {
                Ok(client_ip) => self.reading.client_ip = client_ip,
                Err(_) => {
                    let message = "trust in everybody would let every client choose its address; \
                                   list the networks of your proxies";
                    self.report(ProblemCode::R10, &trust.span, message);
                }
            }
        }
        if let Some(header) = CLIENT_IP_HEADER.node(node)
            && let Some(name) = CLIENT_IP_HEADER.of(node, &mut self.report)
        {
            if TRUST.node(node).is_none() {
                let message =
                    "`header` is read only from proxies that are trusted: list them in `trust`";
                self.report(ProblemCode::R02, &header.span, message);
            }
            self.reading.client_ip = self.reading.client_ip.clone().header(header_named(name));
        }
        self.reading.client_ip = self.reading.client_ip.clone().grouped_by(self.prefix);
    }

    fn read_cors_origins(&mut self, root: &Node) -> CorsOrigins {
        let origins = CORS_ORIGINS.all(root, &mut self.report).unwrap_or_default();
        let origins = CorsOrigins(origins.into());
        if let Some(list) = CORS_ORIGINS.node(root).filter(|_| origins.has_any())
            && list.items().len() > 1
        {
            let message =
                "`*` is any origin, so it is alone: list the origins without `*`, or only `*`";
            self.report(ProblemCode::R01, &list.span, message);
        }
        origins
    }

    /// Adds the templates of a file. Reports those that an earlier file has.
    fn read_templates(&mut self, node: &'c Node) {
        for entry in node.entries() {
            let known = self.templates.iter().find(|(name, _)| *name == entry.key);
            if let Some((_, Some(known))) = known {
                let message = format!("{:?} is taken: {}", entry.key, known.span.short());
                self.report(ProblemCode::R03, &entry.key_span, message);
            }
        }
        self.check_null_keys(node.entries());
        for entry in node.entries() {
            let name = entry.key.as_str();
            if name == "unlimited" || name.contains('/') {
                let message = format!("{name:?} already means something where a quota is said");
                self.report(ProblemCode::R03, &entry.key_span, message);
            }
            // A name that one file has twice is reported with the file's form.
            if !self.templates.iter().any(|(known, _)| *known == name) {
                self.templates.push((name, Some(&entry.value)));
            }
        }
    }

    /// Reads each template once, to report its faults at its own place.
    fn check_templates(&mut self) {
        // No templates while they are read: a template cannot name another one.
        let mut templates = std::mem::take(&mut self.templates);
        for (_, template) in &mut templates {
            let faults = self.report.faults();
            let found = template.and_then(|node| self.quota_set(node, "template"));
            if found.is_none() || self.report.faults() > faults {
                *template = None;
            }
        }
        self.templates = templates;
    }

    /// The value of a field that only one file may have.
    fn only<K>(&mut self, roots: &'c [Node], field: &Field<K>) -> Option<&'c Node> {
        let mut entries = roots.iter().filter_map(|root| field.entry(root));
        let first = entries.next()?;
        for other in entries {
            let message = format!("{:?} is taken: {}", field.name(), first.key_span.short());
            self.report(ProblemCode::R03, &other.key_span, message);
        }
        Some(&first.value)
    }

    /// The rules without faults, and the nodes of all rules.
    fn rules(&mut self, roots: &'c [Node]) -> (Vec<Rule>, Vec<&'c Node>) {
        let lists = roots.iter().filter_map(|root| RULES.of(root));
        let mut nodes: Vec<&Node> = lists.flat_map(Node::items).collect();
        if nodes.len() > MAX_RULES {
            let message = format!("{} rules; accepted are {MAX_RULES}", nodes.len());
            self.report(ProblemCode::R01, &nodes[MAX_RULES].span, message);
            nodes.truncate(MAX_RULES);
        }
        let mut settings = DefaultHasher::new();
        for field in [&DEFAULTS, &CLIENT_IP] {
            let values = roots.iter().filter_map(|root| field.of(root));
            values.for_each(|value| value.canonical().hash(&mut settings));
        }
        let rules = nodes
            .iter()
            .filter_map(|node| self.rule(node, &settings))
            .collect();
        (rules, nodes)
    }
}

/// The kind of a header: a list where the header is one by its specification, else a single address.
fn header_named(name: http::HeaderName) -> ClientIpHeader {
    match name.as_str() {
        "x-forwarded-for" => ClientIpHeader::XForwardedFor,
        "forwarded" => ClientIpHeader::Forwarded,
        "cloudfront-viewer-address" => ClientIpHeader::CloudFrontViewerAddress,
        _ => ClientIpHeader::Single(name),
    }
}
