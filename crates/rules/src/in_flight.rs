//! `in_flight`: the limit of a rule on requests that run at the same time, and the tables that count them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tower_ratelimit_rulefile::{
    ProblemCode,
    document::{Node, NodeEntry},
    fields::{
        Field, Parsed,
        Shape::{self, Either, Map, NumberOfReader, Table as InTable, Text as AsText},
        Table, Text, Tree,
    },
};

use super::{
    compile::context::{Context, duration},
    rule_quotas::Allowance,
};
use tower_ratelimit_concurrency::{InFlight, PermitSource, Permits};
use tower_ratelimit_core::{
    decision::{Policy, Unit},
    lock::unpoisoned,
    quota::check_name,
};

/// The most requests of a key that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlightRule {
    pub(super) name: Box<str>,
    max: u16,
    /// The most of each tier by the index of its set of quotas; empty if all tiers have `max`.
    tiers: Box<[u16]>,
    /// The lease of a permit in Redis, if the file sets one.
    pub(super) lease: Option<Duration>,
}

impl InFlightRule {
    fn most(&self, set_index: usize) -> u64 {
        u64::from(*self.tiers.get(set_index).unwrap_or(&self.max))
    }

    /// The most requests of each tier that has a limit of its own, by its index; of all if none has.
    pub(super) fn most_of_tiers(&self) -> impl Iterator<Item = u64> {
        (0..self.tiers.len().max(1)).map(|tier| self.most(tier))
    }

    pub(super) fn policy(&self, set_index: usize) -> Policy {
        let policy = Policy::owned(&*self.name, self.most(set_index));
        policy.with_unit(Unit::ConcurrentRequests)
    }
}

const MOST: Shape = NumberOfReader(1, u16::MAX as u64);

pub(super) static IN_FLIGHT: Field<Tree> = Field::tree(
    "in_flight",
    Either(&[MOST, InTable(&IN_FLIGHT_TABLE)]),
    "The most requests of a key that run at the same time, from 1 to 65535, or a table. A rule with it needs no `quota`. Default: any number.",
);

static IN_FLIGHT_TABLE: Table = Table::new(
    "in_flight",
    "A limit on requests that run at the same time.",
    &[&MAX, &TIERS, &NAME, &LEASE],
);

static MAX: Field<Tree> = Field::tree(
    "max",
    MOST,
    "The most requests of a key at the same time, from 1 to 65535.",
)
.required();

static TIERS: Field<Tree> = Field::tree(
    "tiers",
    Map(&MOST),
    "The most of a tier of the rule, instead of `max`.",
);

static NAME: Field<Text> = Field::text(
    "name",
    "uploads",
    "The name of its policy. Default: the rule's name and `.in_flight`.",
);

static LEASE: Field<Parsed<Duration>> = Field::parsed(
    "lease",
    AsText("1m"),
    ProblemCode::R08,
    lease,
    "The time after which the permits of a node that crashed are free again, from 1s to 24h; in Redis only. Default: 1m.",
);

/// The time of a lease. Renewals come three times in it, so a shorter one would be lost to the first delay.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    let accepted = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
    if accepted.contains(&lease) {
        Ok(lease)
    } else {
        Err(format!("a lease of {text:?}; accepted are 1s to 24h"))
    }
}

impl<'c> Context<'c> {
    pub(super) fn in_flight(
        &mut self,
        entry: Option<&'c NodeEntry>,
        name: &str,
        allowance: &Allowance,
    ) -> Option<Box<InFlightRule>> {
        let entry = entry?;
        let node = &entry.value;
        if !(self.setup.holds_permits || self.setup.requests_only) {
            let message = "`in_flight` needs a program whose responses hold permits: \
                           `RulesBuilder::accept_in_flight` with `RulesLayer::holding`";
            self.report(ProblemCode::R02, &entry.key_span, message);
        }
        let max = self.most(MAX.of(node).unwrap_or(node));
        let tiers = self.most_of_tiers(node, allowance, max.unwrap_or(1));
        let policy = match NAME
            .node(node)
            .and_then(|named| Some((named, named.text()?)))
        {
            Some((named, text)) => {
                if let Err(error) = check_name(text) {
                    self.report(ProblemCode::R04, &named.span, error.to_string());
                }
                text.to_owned()
            }
            None => format!("{name}.in_flight"),
        };
        Some(Box::new(InFlightRule {
            name: policy.into(),
            max: max?,
            tiers,
            lease: LEASE.of(node, &mut self.report),
        }))
    }

    /// A number of requests. Reports one that is not accepted.
    fn most(&mut self, node: &Node) -> Option<u16> {
        let number = node.number()?;
        match u16::try_from(number) {
            Ok(most) if most > 0 => Some(most),
            _ => {
                let message = format!("{number} requests in flight; accepted are 1 to 65535");
                self.report(ProblemCode::R17, &node.span, message);
                None
            }
        }
    }

    fn most_of_tiers(&mut self, node: &Node, allowance: &Allowance, max: u16) -> Box<[u16]> {
        let Some(entry) = TIERS.entry(node) else {
            return Box::default();
        };
        let Some(tiers) = allowance.tiers() else {
            let message = "`tiers` is of no use without `tier` in the rule";
            self.report(ProblemCode::R02, &entry.key_span, message);
            return Box::default();
        };
        let mut most = vec![max; tiers.len()];
        for own in TIERS.entries(node) {
            let known = tiers.iter().map(|name| &**name);
            match known.clone().position(|name| name == own.key) {
                Some(at) => most[at] = self.most(&own.value).unwrap_or(max),
                None => self.unknown("tier", &own.key, &own.key_span, known),
            }
        }
        most.into()
    }
}

/// The requests in flight of each rule by its name, which survive a reload. A table exists while a rule or a permit of it does.
#[derive(Clone, Default)]
pub(super) struct InFlightTables(Arc<Mutex<HashMap<Box<str>, Weak<InFlight>>>>);

/// The permits of each rule, by its position and the index of its tier; only those of the first tier if all have one number.
#[derive(Clone)]
pub(super) struct RulePermits(pub(super) Arc<[Box<[Permits]>]>);

impl InFlightTables {
    fn of(&self, rule: &str) -> Arc<InFlight> {
        let mut tables = unpoisoned(self.0.lock());
        if let Some(table) = tables.get(rule).and_then(Weak::upgrade) {
            return table;
        }
        tables.retain(|_, table| table.strong_count() > 0);
        let table = Arc::new(InFlight::new());
        tables.insert(rule.into(), Arc::downgrade(&table));
        table
    }

    /// The permits of a rule, by the index of the tier, as `sources` are.
    pub(super) fn permits(
        &self,
        (rule, limit): (&str, &InFlightRule),
        sources: &[PermitSource],
    ) -> Box<[Permits]> {
        let table = self.of(rule);
        let of_tier = |(tier, source): (usize, &PermitSource)| {
            Permits::counted_in(Arc::clone(&table), limit.policy(tier), source.clone())
        };
        sources.iter().enumerate().map(of_tier).collect()
    }
}

impl RulePermits {
    pub(super) fn of(&self, position: u16, set_index: usize) -> Option<&Permits> {
        let tiers = &self.0[usize::from(position)];
        tiers.get(set_index).or(tiers.first())
    }
}
