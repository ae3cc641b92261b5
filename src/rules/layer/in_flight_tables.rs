//! The requests in flight of each rule, which survive a reload.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use crate::{
    concurrency::{Grant, InFlight},
    decision::Policy,
    key::Key,
    lock::unpoisoned,
    quota::Priority,
    rules::rule::Rule,
};

/// The tables by the rules' names. A table exists while a rule or a permit of it does.
#[derive(Clone, Default)]
pub(super) struct InFlightTables(Arc<Mutex<HashMap<Box<str>, Weak<InFlight>>>>);

/// A rule's limit on requests in flight.
pub(super) struct InFlightLimit {
    table: Arc<InFlight>,
    /// By the index of the tier; only the first if all tiers have one number.
    policies: Box<[Policy]>,
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

    /// The limit of a rule, if it has one.
    pub(super) fn limit(&self, rule: &Rule) -> Option<InFlightLimit> {
        let limit = rule.in_flight.as_deref()?;
        let tiers = 0..limit.tiers.len().max(1);
        Some(InFlightLimit {
            table: self.of(&rule.name),
            policies: tiers.map(|tier| limit.policy(tier)).collect(),
        })
    }
}

impl InFlightLimit {
    /// The policies, by the index of the tier.
    pub(super) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The index of a tier's policy.
    pub(super) fn index(&self, set_index: usize) -> usize {
        if set_index < self.policies.len() {
            set_index
        } else {
            0
        }
    }

    /// Requests a permit.
    pub(super) fn acquire(&self, set_index: usize, key: Key) -> Grant {
        let policy = &self.policies[self.index(set_index)];
        let most = policy.limit();
        Grant::counted(policy, &self.table, key, most, Priority::CRITICAL)
    }
}
