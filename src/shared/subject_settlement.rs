//! Settlement: what a call does to the rows of a subject, before and after its operations.
//!
//! In: the value of a subject with a row for each node that leases or reports, and the message of the calling node, if there
//! is one. Out: the value after it, and the reply to the message. `redis/script/node_rows.lua` does the same in Redis.
//!
//! 1. `begin` charges the units of rows that have ended, and takes the row of the message's name out of the others. It
//!    charges what the message reports: spent units of a lease (`settle_lease`), or units that were spent
//!    ahead (`charge_unreported`). A message that came before changes nothing.
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
    node_message::{LONGEST_LEASE, MOST_ROWS, NodeMessage, NodeReply, NodeReport, RowStatus},
    node_rows::{NodeRow, NodeRows, latest_end},
    plan::Plan,
    subject_value::SubjectValue,
};
use crate::{
    algorithm::{Held, View},
    limiter::tier_quotas::TierQuotas,
    quota::Priority,
};

/// A call about a subject that has rows, or whose node sends a message.
///
/// `redis/script/node_rows.lua` does the same.
pub(super) struct Settlement<'a> {
    plan: &'a Plan,
    quotas: &'a TierQuotas,
    /// The class of the operations: a lease is granted with the share of the class that needs it.
    class: Priority,
    /// In microseconds.
    now: u64,
    message: Option<NodeMessage>,
    /// The row of the message's name, out of the others until the operations are done.
    row: Option<NodeRow>,
    status: RowStatus,
    is_repeat: bool,
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

/// Rows that lease units, and rows that report what was spent ahead.
impl Settlement<'_> {
    /// Charges spent units and frees returned ones, if the message is the next one of a known row.
    fn settle_lease(&mut self, seq: u32, (spent, back): (u32, u32), subject: &mut SubjectValue) {
        let Some(row) = &mut self.row else { return };
        self.is_repeat = row.seq == seq;
        self.status = match row.seq {
            known if known == seq && row.is_born => RowStatus::New,
            known if known == seq || known + 1 == seq => RowStatus::Known,
            _ => RowStatus::Stale,
        };
        if self.status != RowStatus::Known || self.is_repeat {
            return;
        }
        let SubjectValue { nodes, states, .. } = subject;
        let spent = spent.min(row.units);
        row.units -= spent;
        // The lease ends later than now, so all of it counts now.
        let (mask, end) = (row.mask, self.now + 1);
        nodes.settle(self.plan, states, self.now, mask, u64::from(spent), end);
        let back = back.min(row.units);
        row.units -= back;
        nodes.free(mask, u64::from(back));
    }

    /// Grants units to the node's row, a new one if it has none and may have one. Returns whether
    /// units are scarce: the nodes want more than there is, and this one gets less than it wants.
    fn grant(
        &mut self,
        message: &NodeMessage,
        (want, demand): (u32, u32),
        subject: &mut SubjectValue,
        is_blocked: bool,
    ) -> bool {
        let row = self.row.take();
        let Some(mut row) = row.or_else(|| self.new_row(message, &subject.nodes)) else {
            return false;
        };
        let want = if is_blocked { 0 } else { want };
        let request = (want, demand, length(message));
        let (units, is_scarce) = self.reserve(request, subject, &mut row);
        row.units += units;
        (row.seq, row.demand) = (message.seq, demand);
        row.is_born = self.status == RowStatus::New;
        self.row = Some(row);
        is_scarce
    }

    fn new_row(&self, message: &NodeMessage, nodes: &NodeRows) -> Option<NodeRow> {
        let group = NodeRows::group_of(self.plan, self.quotas);
        group.filter(|_| nodes.rows.len() < MOST_ROWS)?;
        Some(NodeRow {
            name: message.name,
            seq: message.seq,
            is_born: true,
            mask: 0,
            units: 0,
            demand: 0,
            end: self.now,
        })
    }

    /// Extends the row and reserves the node's share: how much, and whether units are scarce. A row
    /// whose units are of other slots or of another rate runs to its end.
    fn reserve(
        &self,
        (want, demand, length): (u32, u32, u64),
        subject: &mut SubjectValue,
        row: &mut NodeRow,
    ) -> (u32, bool) {
        let Some(group) = NodeRows::group_of(self.plan, self.quotas) else {
            return (0, false);
        };
        let known = &subject.nodes.groups;
        let known = known.iter().find(|known| known.mask == group.mask);
        let is_alike = known.is_none_or(|known| known.intervals == group.intervals);
        if row.units > 0 && !(is_alike && row.mask == group.mask) {
            return (0, false);
        }
        row.mask = group.mask;
        // A node that does not know of a shorter length yet spends until the end that it knows.
        let known_end = if row.units > 0 { row.end } else { self.now };
        row.end = self.end(known_end.max(self.now + length), subject);
        if want == 0 {
            return (0, false);
        }
        let free = self.free(subject).min(u64::from(u32::MAX - row.units));
        let all = subject.nodes.demand + u64::from(demand);
        let want = self.want((want, demand, length), row);
        let units = if is_alike && row.end > self.now {
            share(demand, want, free, all)
        } else {
            0
        };
        subject.nodes.reserve(group, u64::from(units));
        (units, all > free && units < want)
    }

    /// The units that the node wants: its demand in a quarter of a lease. A row that ends sooner,
    /// with a window or slice, gets no more than the demand until then: the rest would count as
    /// spent.
    fn want(&self, (want, demand, length): (u32, u32, u64), row: &NodeRow) -> u32 {
        let left = row.end.saturating_sub(self.now);
        if 4 * left >= length {
            return want;
        }
        let soon = u128::from(4 * left) * u128::from(demand) / u128::from(length);
        let soon = u32::try_from(soon).unwrap_or(u32::MAX);
        want.min(soon.saturating_sub(row.units))
    }

    /// The units that all quotas have left for the class.
    fn free(&self, subject: &SubjectValue) -> u64 {
        let counted = self.quotas.meters.iter().zip(&self.quotas.counters);
        let held = self.held(&subject.nodes);
        let free = counted.enumerate().map(|(place, (meter, counter))| {
            let view = View::of(self.class, &held, place);
            meter.available(&subject.states[counter.0], self.now * 1_000, view)
        });
        free.min().unwrap_or(0)
    }

    /// The end of the node's row: no later than that of a window or slice.
    fn end(&self, latest: u64, subject: &SubjectValue) -> u64 {
        let counters = self.quotas.meters.iter().zip(&self.quotas.counters);
        let ends = counters.filter_map(|(meter, counter)| {
            let end = meter.lease_end(&subject.states[counter.0], self.now * 1_000);
            Some(end? / 1_000)
        });
        ends.fold(latest, u64::min)
    }

    /// Charges the units of `total` that are not counted yet, whether or not there is room.
    /// `counted` is the node's number of counted units, for a row that the store has forgotten.
    fn charge_unreported(&mut self, total: u32, counted: u32, subject: &mut SubjectValue) {
        let counted = match &self.row {
            Some(row) if row.mask > 0 => {
                self.status = RowStatus::Stale;
                return;
            }
            Some(row) => {
                self.status = RowStatus::Known;
                row.units
            }
            None => counted,
        };
        let units = u64::from(total.saturating_sub(counted));
        let quotas = self.quotas.meters.iter().zip(&self.quotas.counters);
        for (meter, counter) in quotas.filter(|(meter, _)| units > 0 && !meter.is_unleased()) {
            let now = self.now * 1_000;
            let interval = meter.leased_interval().unwrap_or(0);
            let state = &mut subject.states[counter.0];
            meter.settle(state, now, now + 1_000, units, interval);
        }
    }

    /// Keeps in the row how much of the name's units is counted, if the subject may have one more
    /// row.
    fn keep_count(&mut self, message: &NodeMessage, total: u32, nodes: &NodeRows) {
        let has_room = self.row.is_some() || nodes.rows.len() < MOST_ROWS;
        if self.status == RowStatus::Stale || !has_room {
            return;
        }
        let counted = self.row.as_ref().map_or(0, |row| row.units);
        self.row = Some(NodeRow {
            name: message.name,
            seq: message.seq,
            is_born: self.status == RowStatus::New,
            mask: 0,
            units: counted.max(total),
            demand: 0,
            end: self.now + length(message),
        });
    }
}

/// The node's share of the free units, where `all` is the demand of all nodes: as if one more node
/// with the same demand were coming, so a node that is alone gets half. A single unit is not worth a
/// lease.
fn share(demand: u32, want: u32, free: u64, all: u64) -> u32 {
    let demand = u64::from(demand);
    let share = free * demand / (all + demand).max(1);
    let share = share.min(u64::from(want));
    u32::try_from(share)
        .ok()
        .filter(|units| *units >= 2)
        .unwrap_or(0)
}

/// How long the row of a message lasts, in microseconds.
fn length(message: &NodeMessage) -> u64 {
    let length = message.length.min(LONGEST_LEASE);
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}
