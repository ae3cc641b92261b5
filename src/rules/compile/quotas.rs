//! Quotas of files: texts, tables, lists and templates.

use std::borrow::Cow;

use super::context::Context;
use crate::{
    error::{ConfigError, ConfigErrorKind},
    quota::{OwnedQuota, Quota},
    rules::{
        allowance::{Allowance, CounterId, QuotaSet, RuleQuota, Scheduled},
        problem::{Problem, ProblemCode, Spot},
        tree::Node,
    },
};

/// The most quotas of one rule.
const MAX_QUOTAS: usize = 16;

/// The most quotas of all rules, each use of a template counted.
const MAX_ALL_QUOTAS: usize = 100_000;

/// Not a quota.
const UNLIMITED: &str = "unlimited";

impl<'c> Context<'c> {
    /// What a rule allows; `None` if that is a fault.
    pub(super) fn allowance(&mut self, rule: &'c Node, name: &str) -> Option<Allowance> {
        if let Some(tier) = rule.get("tier") {
            for field in ["quota", "schedule"] {
                if let Some(entry) = rule.entry(field) {
                    let message = format!("`{field}` is of no use beside `tier`");
                    self.fault(ProblemCode::R02, &entry.key_spot, message);
                }
            }
            return self.tiers(tier, name);
        }
        let Some(quota) = rule.get("quota") else {
            let message =
                format!("the rule {name:?} limits nothing: it has no `quota` and no `tier`");
            self.fault(ProblemCode::R02, &rule.spot, message);
            return None;
        };
        let otherwise = self.quota_set(quota, name);
        let Some(schedule) = rule.get("schedule") else {
            return Some(Allowance::Always(otherwise?));
        };
        let mut times = Vec::new();
        for item in schedule.items() {
            let windows = item.get("time").map(|time| self.times(time));
            let quotas = item
                .get("quota")
                .and_then(|quota| self.quota_set(quota, name));
            if let (Some(windows), Some(quotas)) = (windows, quotas) {
                times.push(Scheduled { windows, quotas });
            }
        }
        Some(Allowance::Scheduled {
            times: times.into(),
            otherwise: otherwise?,
        })
    }

    /// Whether templates make more of a file than a process should hold.
    pub(super) fn check_count(&mut self) {
        if self.quotas_made > MAX_ALL_QUOTAS {
            let message =
                format!("more than {MAX_ALL_QUOTAS} quotas, each use of a template counted");
            self.report
                .add(Problem::without_place(ProblemCode::R01, message));
        }
    }

    fn tiers(&mut self, node: &'c Node, name: &str) -> Option<Allowance> {
        let mut tiers = Vec::new();
        let quotas = node.get("quotas")?;
        self.check_null_keys(quotas.entries());
        for entry in quotas.entries() {
            let set = self.quota_set(&entry.value, name);
            tiers.push((Box::from(entry.key.as_str()), set.unwrap_or(None)));
        }
        let header = node.get("header")?;
        let header = self.header_name(header.text()?, &header.spot);
        let default = node.get("default")?;
        let wanted = default.text()?;
        let at = quotas
            .entries()
            .iter()
            .position(|entry| entry.key == wanted);
        if at.is_none() {
            let known = quotas.entries().iter().map(|entry| entry.key.as_str());
            self.unknown("tier", wanted, &default.spot, known);
        }
        Some(Allowance::Tiers {
            header: header?,
            default: at?,
            tiers: tiers.into(),
        })
    }

    /// The quotas that a value stands for: `Some(None)` is unlimited, `None` a fault.
    pub(super) fn quota_set(&mut self, node: &'c Node, rule: &str) -> Option<Option<QuotaSet>> {
        let Some(text) = node.text() else {
            return self.quotas_of(node, rule).map(Some);
        };
        if text == UNLIMITED {
            return Some(None);
        }
        let template = self.templates.iter().find(|(name, _)| *name == text);
        if let Some((_, template)) = template {
            // The faults of a template are told once, where it stands.
            let template = (*template)?;
            return match template.text() {
                Some(UNLIMITED) => Some(None),
                _ => self.quotas_of(template, rule).map(Some),
            };
        }
        if !text.contains('/') && !text.starts_with(|c: char| c.is_ascii_digit()) {
            let templates = self.templates.clone();
            let known = templates.iter().map(|(name, _)| *name).chain([UNLIMITED]);
            self.unknown("quota", text, &node.spot, known);
            return None;
        }
        self.quotas_of(node, rule).map(Some)
    }

    fn quotas_of(&mut self, node: &'c Node, rule: &str) -> Option<QuotaSet> {
        let items = split(node);
        if items.is_empty() || items.len() > MAX_QUOTAS {
            let message = format!("{} quotas; accepted are 1 to {MAX_QUOTAS}", items.len());
            self.fault(ProblemCode::R04, &node.spot, message);
            return None;
        }
        self.quotas_made += items.len();
        if self.quotas_made > MAX_ALL_QUOTAS {
            return None;
        }
        let quotas: Vec<Option<OwnedQuota>> = items
            .iter()
            .map(|(item, text)| self.quota(item, *text))
            .collect();
        // With a fault among them the others are not looked at further.
        let quotas: Vec<OwnedQuota> = quotas.into_iter().collect::<Option<_>>()?;
        let mut names: Vec<Cow<'static, str>> = Vec::new();
        let mut set = Vec::new();
        for (at, (quota, (item, _))) in quotas.iter().zip(&items).enumerate() {
            let name = quota.name_in(quotas.len());
            if names.contains(&name) {
                let message = format!("two quotas are named {name:?}; names have to be unique");
                self.fault(ProblemCode::R04, &item.spot, message);
            }
            let policy = match quotas.len() {
                1 => rule.to_owned(),
                _ => format!("{rule}.{name}"),
            };
            names.push(name);
            let counter = CounterId::new(rule, at, quota);
            let quota = quota.quota().named_owned(policy);
            if let Err(error) = quota.check() {
                self.fault(ProblemCode::R04, &item.spot, error.to_string());
            }
            set.push(RuleQuota { quota, counter });
        }
        Some(QuotaSet(set.into()))
    }

    /// The quota of a table, or of a part of a text.
    fn quota(&mut self, node: &Node, text: Option<&str>) -> Option<OwnedQuota> {
        if let Some(name) = node.get("name")
            && let Some(text) = name.bare_text()
        {
            self.check_null(text, false, &name.spot);
        }
        let read = match text {
            Some(text) => text.trim().parse::<Quota>().map(OwnedQuota::from),
            // The words of the fields after the rate: so a table means what the text means.
            None => of_words(node, &words_of(node)?),
        };
        match read {
            Ok(quota) => Some(quota),
            Err(error) => {
                let spot = place_of(node, &error);
                self.fault(ProblemCode::R04, spot, error.to_string());
                None
            }
        }
    }
}

/// The quotas of a list, tables as a whole; a text may have several, with semicolons between them.
fn split(node: &Node) -> Vec<(&Node, Option<&str>)> {
    let split = |item| {
        let parts: Vec<Option<&str>> = match Node::text(item) {
            Some(text) => text.split(';').map(Some).collect(),
            None => vec![None],
        };
        parts.into_iter().map(move |part| (item, part))
    };
    node.items().iter().flat_map(split).collect()
}

fn of_words(node: &Node, words: &str) -> Result<OwnedQuota, ConfigError> {
    let quota: Quota = words.parse()?;
    let owned = match node.get("name").and_then(Node::text) {
        Some(name) => quota.named_owned(name),
        None => quota.into(),
    };
    owned.check()?;
    Ok(owned)
}

/// The quota as a text. `None` if it has no rate, which is a fault that was told.
fn words_of(node: &Node) -> Option<String> {
    let mut words = node.get("rate")?.text()?.to_owned();
    if let Some(algorithm) = node.get("algorithm").and_then(Node::text) {
        words += &format!(" {algorithm}");
    }
    for field in ["burst", "queue", "slices", "soft"] {
        if let Some(number) = node.get(field).and_then(Node::number) {
            words += &format!(" {field} {number}");
        }
    }
    if let Some(step) = node.get("refill_every").and_then(Node::text) {
        words += &format!(" refill_every {step}");
    }
    Some(words)
}

/// The field that a fault is about.
fn place_of<'n>(node: &'n Node, error: &ConfigError) -> &'n Spot {
    let field = match error.kind() {
        ConfigErrorKind::Burst => "burst",
        ConfigErrorKind::Queue => "queue",
        ConfigErrorKind::RefillStep => "refill_every",
        ConfigErrorKind::Slices => "slices",
        ConfigErrorKind::Soft => "soft",
        ConfigErrorKind::Name => "name",
        _ => "rate",
    };
    let value = node.get(field).or_else(|| node.get("rate"));
    &value.unwrap_or(node).spot
}
