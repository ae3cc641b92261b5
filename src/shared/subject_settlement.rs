//! Settlement: what a call does to the rows of a subject, before and after its operations.
//!
//! In: the value of a subject with a row for each node that leases or reports, and the message of the calling node, if there
//! is one. Out: the value after it, and the reply to the message. `redis/script/node_rows.lua` does the same in Redis.
//!
//! 1. `begin` charges the units of rows that have ended, and takes the row of the message's name out of the others. It
//!    charges what the message reports: spent units of a lease (`lease/lease_settlement.rs`), or units that were spent
//!    ahead (`eventual/eventual_settlement.rs`). A message that came before changes nothing.
//! 2. The operations of the call run on the quotas' meters with the units held by all rows (`meters`).
//! 3. `finish` grants units if the message requests some, and puts the row back. The reply has the units of the row and
//!    the time until it ends; when units are scarce, how long the node pauses; and how long it may keep a denial.
//!
//! Example: a node holds 50 units, and its message has 20 as spent and wants 40. `begin` charges 20 and leaves 30 in the row,
//! which count as used for everybody else. `finish` adds to them the share that the node is granted.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::wire::{
    node_message::{LONGEST_LEASE, NodeMessage, NodeReply, NodeReport, RowStatus},
    node_rows::{NodeRow, NodeRows, latest_end},
    plan::Plan,
    subject_value::SubjectValue,
};
use crate::{algorithm::Held, limiter::tier_quotas::TierQuotas, quota::Priority};

/// A call about a subject that has rows, or whose node sends a message.
///
/// `redis/script/node_rows.lua` does the same.
pub(super) struct Settlement<'a> {
    pub(super) plan: &'a Plan,
    pub(super) quotas: &'a TierQuotas,
    /// The class of the operations: a lease is granted with the share of the class that needs it.
    pub(super) class: Priority,
    /// In microseconds.
    pub(super) now: u64,
    message: Option<NodeMessage>,
    /// The row of the message's name, out of the others until the operations are done.
    pub(super) row: Option<NodeRow>,
    pub(super) status: RowStatus,
    pub(super) is_repeat: bool,
}

impl<'a> Settlement<'a> {
    /// Charges the units of rows that have ended, and those that the message reports.
    pub(super) fn begin(
        plan: &'a Plan,
        (quotas, class): (&'a TierQuotas, Priority),
        now: u64,
        message: Option<&NodeMessage>,
        subject: &mut SubjectValue,
    ) -> Self {
        for slot in plan.slots() {
            let state = &mut subject.states[slot.counter.0];
            slot.meter.forget_much(state, now * 1_000);
            slot.meter.clamp(state, now * 1_000);
        }
        let SubjectValue { nodes, states, .. } = &mut *subject;
        nodes.heal(latest_end(now));
        nodes.end(plan, states, now);
        let mut settlement = Self {
            plan,
            quotas,
            class,
            now,
            message: message.copied(),
            row: message.and_then(|message| nodes.take(message.name)),
            status: RowStatus::New,
            is_repeat: false,
        };
        if let Some(row) = &mut settlement.row {
            row.end = row.end.min(latest_end(now));
        }
        match message.map(|message| (message.seq, message.report)) {
            Some((seq, NodeReport::Lease { spent, back, .. })) => {
                settlement.settle_lease(seq, (spent, back), subject);
            }
            Some((_, NodeReport::Eventual { total, counted })) => {
                settlement.charge_unreported(total, counted, subject);
            }
            None => {}
        }
        settlement
    }

    /// Whether the message takes effect.
    fn is_new(&self) -> bool {
        self.message.is_some() && self.status != RowStatus::Stale && !self.is_repeat
    }

    /// The units of each quota that leases hold.
    pub(super) fn held(&self, nodes: &NodeRows) -> Vec<Option<Held>> {
        let mut until = nodes.last_end(self.now);
        if let Some(row) = &self.row {
            until = until.max(row.end);
        }
        if let Some(message) = self.message.as_ref().filter(|_| self.is_new()) {
            until = until.max(self.now + length(message));
        }
        let counters = self.quotas.counters.iter();
        let held = counters.map(|counter| nodes.held(self.plan, *counter, until));
        held.collect()
    }

    /// Drops the units of the caller's lease: the operation is a reset.
    pub(super) fn reset(&mut self, nodes: &mut NodeRows) {
        let report = self.message.map(|message| message.report);
        if !self.is_new() || matches!(report, Some(NodeReport::Eventual { .. })) {
            return;
        }
        if let Some(row) = &mut self.row {
            nodes.free(row.mask, u64::from(row.units));
            row.units = 0;
        }
    }

    /// Grants units and makes the reply to the message, if there is one.
    pub(super) fn finish(
        &mut self,
        subject: &mut SubjectValue,
        is_blocked: bool,
    ) -> Option<NodeReply> {
        let message = self.message?;
        let length = length(&message);
        let others = subject.nodes.rows.len() as u64;
        let hold = ((others + 1) * 1_000).clamp(length / 50, length / 4);
        let mut is_scarce = false;
        match message.report {
            NodeReport::Eventual { total, .. } => {
                self.keep_count(&message, total, &subject.nodes);
            }
            NodeReport::Lease { want, demand, .. } if self.is_new() => {
                // More than there ever is at once would only take from the shares of others.
                let most = self.quotas.most_units(self.class);
                let demand = u64::from(demand).min(most) as u32;
                is_scarce = self.grant(&message, (want, demand), subject, is_blocked);
            }
            NodeReport::Lease { .. } => {}
        }
        let pause = if is_scarce { hold } else { 0 };
        Some(self.reply(message.report, subject, (pause, hold)))
    }

    /// How long a node that sends no message caches a denial at most, in microseconds; `None` while
    /// nodes hold no units that they could return before the denial's time is over.
    pub(super) fn hold_beside(&self, nodes: &NodeRows) -> Option<u64> {
        if self.message.is_some() || nodes.units() == 0 {
            return None;
        }
        let span = nodes.last_end(self.now) - self.now;
        let rows = nodes.rows.len() as u64;
        Some((rows * 1_000).min(span / 4).max(span / 50).max(1))
    }

    /// Puts the row back and reports its state.
    fn reply(
        &mut self,
        report: NodeReport,
        subject: &mut SubjectValue,
        (pause, hold): (u64, u64),
    ) -> NodeReply {
        let row = self.row.take();
        let shown = row.as_ref();
        let shown = shown.filter(|_| self.status != RowStatus::Stale);
        let ttl = shown.map_or(0, |row| row.end.saturating_sub(self.now));
        let row_units = shown.map_or(0, |row| row.units);
        let (own, units) = match report {
            NodeReport::Lease { .. } => (row.as_ref().map_or(0, |row| row.units), row_units),
            // Its row reserves nothing.
            NodeReport::Eventual { .. } if self.status == RowStatus::Stale => (0, row_units),
            NodeReport::Eventual { total, .. } => (0, row_units.max(total)),
        };
        let others = subject.nodes.units().saturating_sub(u64::from(own));
        if let Some(row) = row {
            subject.nodes.put(row);
        }
        NodeReply {
            status: self.status,
            units,
            ttl: Duration::from_micros(ttl),
            pause: Duration::from_micros(pause),
            others,
            hold: Duration::from_micros(hold),
        }
    }
}

/// How long the row of a message lasts, in microseconds.
pub(super) fn length(message: &NodeMessage) -> u64 {
    let length = message.length.min(LONGEST_LEASE);
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}
