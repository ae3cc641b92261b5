//! Eventual mode in the store: charges units that nodes have spent and the store has not counted.

use crate::shared::{
    subject_settlement::{Settlement, length},
    wire::{
        node_message::{MOST_ROWS, NodeMessage, RowStatus},
        node_rows::{NodeRow, NodeRows},
        subject_value::SubjectValue,
    },
};

impl Settlement<'_> {
    /// Charges the units of `total` that are not counted yet, whether or not there is room.
    /// `counted` is the node's number of counted units, for a row that the store has forgotten.
    pub(in crate::shared) fn charge_unreported(
        &mut self,
        total: u32,
        counted: u32,
        subject: &mut SubjectValue,
    ) {
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
    pub(in crate::shared) fn keep_count(
        &mut self,
        message: &NodeMessage,
        total: u32,
        nodes: &NodeRows,
    ) {
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
