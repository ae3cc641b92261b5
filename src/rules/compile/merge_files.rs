//! Several files as one list of rules.

use std::{
    hash::{DefaultHasher, Hash},
    sync::Arc,
};

use tower_ratelimit_rulefile::{
    Format, Problem, ProblemCode, Report, RulesError, SourceText, Span,
    document::{self, Node},
    fields::Field,
    listed,
};

use super::{
    context::{Context, Setup},
    references,
    settings::StoreSettings,
    warnings,
};
use crate::{
    key::{ClientIp, IpPrefix},
    rules::{
        cors::CorsOrigins,
        fields::file::{self, FILE},
        request::RequestReading,
        rule::Rule,
    },
};

/// The text of a file, and its format.
#[derive(Debug, Clone)]
pub(in crate::rules) struct SourceFile {
    pub(in crate::rules) source: Arc<SourceText>,
    pub(in crate::rules) format: Format,
}

/// The result of a compilation.
#[derive(Debug)]
pub(in crate::rules) struct Compiled {
    pub(in crate::rules) rules: Vec<Rule>,
    pub(in crate::rules) reading: RequestReading,
    pub(in crate::rules) store: StoreSettings,
    pub(in crate::rules) warnings: Vec<Problem>,
    /// The limits that are left out: the name of a rule, and a field of it.
    pub(in crate::rules) left_out: Vec<(Box<str>, &'static str)>,
}

impl Compiled {
    /// Leaves out the limits that responses decide.
    pub(in crate::rules) fn keep_requests_only(&mut self) {
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
pub(in crate::rules) fn compile(
    files: &[SourceFile],
    setup: &Setup,
) -> Result<Compiled, RulesError> {
    let (roots, report) = read_all(files, setup.empty);
    let mut context = Context {
        setup,
        report,
        templates: Vec::new(),
        client_ip: no_proxies(),
        cors_origins: CorsOrigins::default(),
        prefix: IpPrefix::new(),
        defaults: None,
        default_key: None,
        money: None,
        quotas: 0,
    };
    let store = context.settings(&roots);
    let (rules, all_rules) = context.rules(&roots);
    context.check_count();
    if context.report.faults() == 0 && rules.is_empty() && !setup.empty {
        context.report.add(no_rules(files));
    }
    let rules = references::link(rules, &all_rules, &mut context);
    warnings::warn(&rules, &all_rules, &mut context);
    let reading = RequestReading {
        client_ip: context.client_ip,
        cors_origins: context.cors_origins,
    };
    Ok(Compiled {
        rules,
        reading,
        store,
        warnings: context.report.finish()?,
        left_out: Vec::new(),
    })
}

fn no_rules(files: &[SourceFile]) -> Problem {
    let message = "there is not a single rule";
    match files {
        [] => Problem::without_place(ProblemCode::R02, message),
        [file] => Problem::new(ProblemCode::R02, &Span::new(&file.source, 0, 0), message),
        _ => {
            let names = listed(files.iter().map(|file| &*file.source.name));
            Problem::without_place(ProblemCode::R02, format!("{message} in {names}"))
        }
    }
}

/// The roots of all files that have one, and the problems of their form. Of several files, one without a rule and
/// without a setting is a fault unless `accept_empty`: a copy that is slow or has failed leaves such a file, and its
/// limits would end in silence.
fn read_all(files: &[SourceFile], accept_empty: bool) -> (Vec<Node>, Report) {
    let mut report = Report::default();
    let mut roots: Vec<Node> = Vec::new();
    for file in files {
        let faults = report.faults();
        let root = document::read(&file.source, file.format, &mut report);
        let root = root.filter(|root| !document::report_manifest(root, &mut report));
        if let Some(root) = &root {
            FILE.check(root, &mut report);
        }
        let is_empty = report.faults() == faults && !root.as_ref().is_some_and(has_content);
        if is_empty && files.len() > 1 && !accept_empty {
            let message = "there is no rule in this file, and no setting for the rules of others";
            report.push(ProblemCode::R02, &Span::new(&file.source, 0, 0), message);
        }
        roots.extend(root);
    }
    (roots, report)
}

/// Whether a file has a rule or a setting. `rules: []` is no accident.
fn has_content(root: &Node) -> bool {
    let mut entries = root.entries().iter();
    entries.any(|entry| entry.key != file::VERSION.name())
}

fn no_proxies() -> ClientIp {
    ClientIp::behind(std::iter::empty::<&str>())
}

impl<'c> Context<'c> {
    /// Reads the settings for all rules. Each may stand in one file only.
    fn settings(&mut self, roots: &'c [Node]) -> StoreSettings {
        for version in roots.iter().filter_map(|root| file::VERSION.node(root)) {
            self.check_version(version);
        }
        let store = self.only(roots, &file::STORE).map(StoreSettings::of);
        if let Some(client_ip) = self.only(roots, &file::CLIENT_IP) {
            self.read_client_ip(client_ip);
        }
        if self.only(roots, &file::CORS_ORIGINS).is_some() {
            let mut roots = roots.iter();
            let root = roots.find(|root| file::CORS_ORIGINS.node(root).is_some());
            self.cors_origins = root
                .map(|root| self.read_cors_origins(root))
                .unwrap_or_default();
        }
        self.defaults = self.only(roots, &file::DEFAULTS);
        if let Some(prices) = self.only(roots, &file::PRICES) {
            self.money = self.prices(prices);
        }
        for templates in roots.iter().filter_map(|root| file::QUOTAS.of(root)) {
            self.report_known_templates(templates);
            self.read_templates(templates);
        }
        self.check_templates();
        self.read_default_key();
        store.unwrap_or_default()
    }

    /// Reports templates that an earlier file has.
    fn report_known_templates(&mut self, templates: &'c Node) {
        for entry in templates.entries() {
            let known = self.templates.iter().find(|(name, _)| *name == entry.key);
            if let Some((_, Some(known))) = known {
                let message = format!("{:?} is taken: {}", entry.key, known.span.short());
                self.report(ProblemCode::R03, &entry.key_span, message);
            }
        }
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
        let lists = roots.iter().filter_map(|root| file::RULES.of(root));
        let mut nodes: Vec<&Node> = lists.flat_map(Node::items).collect();
        if nodes.len() > MAX_RULES {
            let message = format!("{} rules; accepted are {MAX_RULES}", nodes.len());
            self.report(ProblemCode::R01, &nodes[MAX_RULES].span, message);
            nodes.truncate(MAX_RULES);
        }
        let mut settings = DefaultHasher::new();
        for field in [&file::DEFAULTS, &file::CLIENT_IP] {
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
