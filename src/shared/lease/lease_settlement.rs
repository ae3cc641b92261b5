//! Leased mode in the store: settles what a node has spent, and grants its share.

use crate::{
    algorithm::View,
    shared::{
        subject_settlement::{Settlement, length},
        wire::{
            node_message::{MOST_ROWS, NodeMessage, RowStatus},
            node_rows::{NodeRow, NodeRows},
            subject_value::SubjectValue,
        },
    },
};

impl Settlement<'_> {
    /// Charges spent units and frees returned ones, if the message is the next one of a known row.
    pub(in crate::shared) fn settle_lease(
        &mut self,
        seq: u32,
        (spent, back): (u32, u32),
        subject: &mut SubjectValue,
    ) {
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
    pub(in crate::shared) fn grant(
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
