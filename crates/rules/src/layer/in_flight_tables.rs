//! The requests in flight of each rule, which survive a reload.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use crate::rule::Rule;
use tower_ratelimit_concurrency::{InFlight, PendingGrant, Permit, PermitSource, Permits};
use tower_ratelimit_core::{decision::Policy, key::Key, lock::unpoisoned, quota::Priority};

/// The tables by the rules' names. A table exists while a rule or a permit of it does.
#[derive(Clone, Default)]
pub(super) struct InFlightTables(Arc<Mutex<HashMap<Box<str>, Weak<InFlight>>>>);

pub(super) struct InFlightLimit {
    table: Arc<InFlight>,
    /// By the index of the tier; only the first if all tiers have one number.
    by_tier: Box<[Permits]>,
}

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

    /// The limit of a rule, if it has one. `sources` are by the index of the tier.
    pub(super) fn limit(&self, rule: &Rule, sources: &[PermitSource]) -> Option<InFlightLimit> {
        let limit = rule.in_flight.as_deref()?;
        let table = self.of(&rule.name);
        let of_tier = |(tier, source): (usize, &PermitSource)| {
            Permits::counted_in(Arc::clone(&table), limit.policy(tier), source.clone())
        };
        Some(InFlightLimit {
            by_tier: sources.iter().enumerate().map(of_tier).collect(),
            table,
        })
    }
}

impl InFlightLimit {
    pub(super) fn index(&self, set_index: usize) -> usize {
        if set_index < self.by_tier.len() {
            set_index
        } else {
            0
        }
    }

    pub(super) fn policy(&self, set_index: usize) -> &Policy {
        self.by_tier[self.index(set_index)].policy()
    }

    pub(super) fn acquire(&self, set_index: usize, key: Key) -> PendingGrant {
        self.by_tier[self.index(set_index)].acquire(key, Priority::CRITICAL)
    }

    /// A permit of this process alone, also if other nodes count theirs.
    pub(super) fn acquire_here(&self, set_index: usize, key: Key) -> Option<Permit> {
        let limit = self.policy(set_index).limit();
        let acquired = self.table.acquire(key, limit).ok();
        acquired.map(|(permit, _)| permit)
    }

    pub(super) fn table(&self) -> &InFlight {
        &self.table
    }
}
