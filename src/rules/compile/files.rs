//! Several files as one list of rules.

use std::{
    hash::{DefaultHasher, Hash},
    sync::Arc,
};

use super::{
    context::{Context, Setup},
    cross,
    settings::StoreSettings,
    warnings,
};
use crate::{
    key::{ClientIp, IpPrefix},
    rules::{
        format::Format,
        problem::{Problem, ProblemCode, RulesError, SourceText, Spot},
        report::{Report, listed},
        rule::Rule,
        shape::validate,
        tree::{Node, read},
    },
};

/// A file that was read.
#[derive(Debug, Clone)]
pub(in crate::rules) struct SourceFile {
    pub(in crate::rules) source: Arc<SourceText>,
    pub(in crate::rules) format: Format,
}

/// Rules ready to be asked.
#[derive(Debug)]
pub(in crate::rules) struct Compiled {
    pub(in crate::rules) rules: Vec<Rule>,
    pub(in crate::rules) client_ip: ClientIp,
    pub(in crate::rules) store: StoreSettings,
    pub(in crate::rules) warnings: Vec<Problem>,
}

/// More could not be numbered.
const MAX_RULES: usize = 10_000;

/// The rules of all files, one after the other.
///
/// # Errors
///
/// All faults, up to twenty.
pub(in crate::rules) fn compile(
    files: &[SourceFile],
    setup: &Setup,
) -> Result<Compiled, RulesError> {
    let (trees, report) = read_all(files);
    let mut context = Context {
        setup,
        report,
        templates: Vec::new(),
        client_ip: no_proxies(),
        prefix: IpPrefix::new(),
        defaults: None,
        default_key: None,
        quotas_made: 0,
    };
    let store = context.settings(&trees);
    let (rules, all_rules) = context.rules(&trees);
    context.check_count();
    if context.report.faults() == 0 && rules.is_empty() && !setup.empty {
        context.report.add(no_rules(files));
    }
    let rules = cross::link(rules, &all_rules, &mut context);
    warnings::warn(&rules, &all_rules, &mut context);
    let client_ip = context.client_ip;
    Ok(Compiled {
        rules,
        client_ip,
        store,
        warnings: context.report.finish()?,
    })
}

fn no_rules(files: &[SourceFile]) -> Problem {
    let message = "there is not a single rule";
    match files {
        [] => Problem::without_place(ProblemCode::R02, message),
        [file] => Problem::new(ProblemCode::R02, &Spot::new(&file.source, 0, 0), message),
        _ => {
            let names = listed(files.iter().map(|file| &*file.source.name));
            Problem::without_place(ProblemCode::R02, format!("{message} in {names}"))
        }
    }
}

/// The trees of all files that have one, and what is wrong with their form.
fn read_all(files: &[SourceFile]) -> (Vec<Node>, Report) {
    let mut report = Report::default();
    let mut trees: Vec<Node> = Vec::new();
    for file in files {
        if let Some(tree) = read(&file.source, file.format, &mut report) {
            validate(&tree, &mut report);
            trees.push(tree);
        }
    }
    (trees, report)
}

fn no_proxies() -> ClientIp {
    ClientIp::behind(std::iter::empty::<&str>())
}

impl<'c> Context<'c> {
    /// What files say for all rules; each at most once.
    fn settings(&mut self, trees: &'c [Node]) -> StoreSettings {
        for tree in trees {
            if let Some(version) = tree.get("version") {
                self.version(version);
            }
        }
        let store = self.only(trees, "store").map(StoreSettings::of);
        if let Some(client_ip) = self.only(trees, "client_ip") {
            self.read_client_ip(client_ip);
        }
        self.defaults = self.only(trees, "defaults");
        for tree in trees {
            if let Some(templates) = tree.get("quotas") {
                self.taken_templates(templates);
                self.read_templates(templates);
            }
        }
        self.check_templates();
        self.read_default_key();
        store.unwrap_or_default()
    }

    /// Templates that an earlier file has.
    fn taken_templates(&mut self, templates: &'c Node) {
        for entry in templates.entries() {
            let known = self.templates.iter().find(|(name, _)| *name == entry.key);
            if let Some((_, Some(known))) = known {
                let message = format!("{:?} is taken: {}", entry.key, known.spot.short());
                self.fault(ProblemCode::R03, &entry.key_spot, message);
            }
        }
    }

    fn only(&mut self, trees: &'c [Node], field: &str) -> Option<&'c Node> {
        let mut said = trees.iter().filter_map(|tree| tree.entry(field));
        let first = said.next()?;
        for other in said {
            let message = format!("{field:?} is taken: {}", first.key_spot.short());
            self.fault(ProblemCode::R03, &other.key_spot, message);
        }
        Some(&first.value)
    }

    /// The rules without faults, and the trees of all.
    fn rules(&mut self, trees: &'c [Node]) -> (Vec<Rule>, Vec<&'c Node>) {
        let lists = trees.iter().filter_map(|tree| tree.get("rules"));
        let mut nodes: Vec<&Node> = lists.flat_map(Node::items).collect();
        if nodes.len() > MAX_RULES {
            let message = format!("{} rules; accepted are {MAX_RULES}", nodes.len());
            self.fault(ProblemCode::R01, &nodes[MAX_RULES].spot, message);
            nodes.truncate(MAX_RULES);
        }
        let of_all = ["defaults", "client_ip"].iter();
        let of_all = of_all.flat_map(|field| trees.iter().filter_map(|tree| tree.get(field)));
        let mut said = DefaultHasher::new();
        of_all.for_each(|node| node.canonical().hash(&mut said));
        let rules = nodes
            .iter()
            .filter_map(|node| self.rule(node, &said))
            .collect();
        (rules, nodes)
    }
}
