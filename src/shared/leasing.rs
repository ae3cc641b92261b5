//! What a call does to the leases of a subject, before and after its operations.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    arguments::Plan,
    holders::{HolderGroup, HolderRow, Holders, latest_end},
    lease::{LONGEST_LEASE, LeaseClause, LeaseReply, LeaseStatus, MOST_HOLDERS},
    subject_value::SubjectValue,
};
use crate::{
    algorithm::{Beside, Counts as _},
    limiter::quotas::Quotas,
};

/// A call about a subject that has leases, or that asks for one.
pub(super) struct Leasing<'a> {
    plan: &'a Plan,
    quotas: &'a Quotas,
    /// In microseconds.
    now: u64,
    clause: Option<LeaseClause>,
    /// The row of the clause's name, taken out until the operations are done.
    mine: Option<HolderRow>,
    status: LeaseStatus,
    is_repeat: bool,
}

/// What was granted, and for how long not to ask again.
struct Granted {
    units: u32,
    is_scarce: bool,
}

impl<'a> Leasing<'a> {
    /// Settles what has ended and what the clause says was spent.
    pub(super) fn begin(
        plan: &'a Plan,
        quotas: &'a Quotas,
        now: u64,
        clause: Option<&LeaseClause>,
        subject: &mut SubjectValue,
    ) -> Self {
        for slot in plan.slots() {
            let state = &mut subject.states[slot.place];
            slot.meter.forget_much(state, now * 1_000);
            slot.meter.clamp(state, now * 1_000);
        }
        let SubjectValue {
            holders, states, ..
        } = &mut *subject;
        holders.heal(latest_end(now));
        holders.end(plan, states, now);
        // More than there ever is at once would only take from the shares of others.
        let clause = clause.map(|clause| LeaseClause {
            demand: u64::from(clause.demand).min(quotas.most_units()) as u32,
            ..*clause
        });
        let mut leasing = Self {
            plan,
            quotas,
            now,
            clause,
            mine: clause.and_then(|clause| holders.take(clause.name)),
            status: LeaseStatus::New,
            is_repeat: false,
        };
        leasing.settle(subject);
        leasing
    }

    /// Charges what the clause says was spent, and frees what it gives back, if it is the next
    /// message of a row that is known.
    fn settle(&mut self, subject: &mut SubjectValue) {
        if self.clause.is_some_and(|clause| clause.force) {
            return self.settle_ahead(subject);
        }
        let (Some(clause), Some(row)) = (&self.clause, &mut self.mine) else {
            return;
        };
        row.end = row.end.min(latest_end(self.now));
        self.is_repeat = row.seq == clause.seq;
        self.status = match row.seq {
            seq if seq == clause.seq && row.is_born => LeaseStatus::New,
            seq if seq == clause.seq || seq + 1 == clause.seq => LeaseStatus::Known,
            _ => LeaseStatus::Stale,
        };
        if self.status != LeaseStatus::Known || self.is_repeat {
            return;
        }
        let SubjectValue {
            holders, states, ..
        } = subject;
        let spent = clause.spent.min(row.units);
        row.units -= spent;
        // It ends later than now, so all of it counts now.
        let (mask, end) = (row.mask, self.now + 1);
        holders.settle(self.plan, states, self.now, mask, u64::from(spent), end);
        let back = clause.back.min(row.units);
        row.units -= back;
        holders.free(mask, u64::from(back));
    }

    /// Charges what was spent without a lease and is not counted yet, whether or not there is room.
    fn settle_ahead(&mut self, subject: &mut SubjectValue) {
        let Some(clause) = &self.clause else { return };
        let counted = match &mut self.mine {
            Some(row) => {
                row.end = row.end.min(latest_end(self.now));
                if row.mask > 0 {
                    self.status = LeaseStatus::Stale;
                    return;
                }
                self.status = LeaseStatus::Known;
                row.units
            }
            None => clause.back,
        };
        let units = u64::from(clause.spent.saturating_sub(counted));
        let quotas = self.quotas.meters.iter().zip(&self.quotas.counters);
        for (meter, place) in quotas.filter(|(meter, _)| units > 0 && !meter.is_queue()) {
            let now = self.now * 1_000;
            let interval = meter.leased_interval().unwrap_or(0);
            let state = &mut subject.states[*place];
            meter.settle(state, now, now + 1_000, units, interval);
        }
    }

    /// Whether the clause is to take effect.
    fn is_new(&self) -> bool {
        self.clause.is_some() && self.status != LeaseStatus::Stale && !self.is_repeat
    }

    /// The quotas' meters, with all that is reserved.
    pub(super) fn meters(&self, holders: &Holders) -> Vec<Beside<'a>> {
        let mut until = holders.last_end(self.now);
        if let Some(mine) = &self.mine {
            until = until.max(mine.end);
        }
        if let Some(clause) = self.clause.as_ref().filter(|_| self.is_new()) {
            until = until.max(self.now + length(clause));
        }
        let quotas = self.quotas;
        let counters = quotas.meters.iter().zip(&quotas.counters);
        let meters = counters.map(|(meter, place)| Beside {
            meter,
            held: holders.held(self.plan, *place, until),
        });
        meters.collect()
    }

    /// After a reset nothing is left of what the caller had.
    pub(super) fn reset(&mut self, holders: &mut Holders) {
        let is_ahead = self.clause.is_some_and(|clause| clause.force);
        if !self.is_new() || is_ahead {
            return;
        }
        if let Some(row) = &mut self.mine {
            holders.free(row.mask, u64::from(row.units));
            row.units = 0;
        }
    }

    /// Grants, and says what the clause came to; nothing without a clause.
    pub(super) fn finish(
        &mut self,
        subject: &mut SubjectValue,
        is_blocked: bool,
    ) -> Option<LeaseReply> {
        let clause = &self.clause?;
        let others = subject.holders.rows.len() as u64;
        let shortest = length(clause) / 50;
        let hold = ((others + 1) * 1_000).clamp(shortest, length(clause) / 4);
        let mut pause = 0;
        let mut mine = self.mine.take();
        if clause.force {
            mine = self.note_ahead(clause, mine, &subject.holders);
        } else if self.is_new() {
            let row = mine.take().or_else(|| self.born(clause, &subject.holders));
            mine = row.map(|mut row| {
                let granted = self.grant(clause, subject, &mut row, is_blocked);
                pause = if granted.is_scarce { hold } else { 0 };
                row.units += granted.units;
                (row.seq, row.demand) = (clause.seq, clause.demand);
                row.is_born = self.status == LeaseStatus::New;
                row
            });
        }
        Some(self.answer(subject, mine, pause, hold))
    }

    /// For how long a node that says nothing of leases holds to a denial at most, in microseconds;
    /// `None` while no units are held that might come back before the denial tells.
    pub(super) fn hold_beside(&self, holders: &Holders) -> Option<u64> {
        if self.clause.is_some() || holders.units() == 0 {
            return None;
        }
        let span = holders.last_end(self.now) - self.now;
        let rows = holders.rows.len() as u64;
        Some((rows * 1_000).min(span / 4).max(span / 50).max(1))
    }

    /// Puts the row back, and says how it is.
    fn answer(
        &self,
        subject: &mut SubjectValue,
        mine: Option<HolderRow>,
        pause: u64,
        hold: u64,
    ) -> LeaseReply {
        let shown = mine.as_ref();
        let shown = shown.filter(|_| self.status != LeaseStatus::Stale);
        let ttl = shown.map_or(0, |row| row.end.saturating_sub(self.now));
        let mut units = shown.map_or(0, |row| row.units);
        let mut own = mine.as_ref().map_or(0, |row| row.units);
        if let Some(clause) = self.clause.filter(|clause| clause.force) {
            own = 0;
            if self.status != LeaseStatus::Stale {
                units = units.max(clause.spent);
            }
        }
        let others = subject.holders.units().saturating_sub(u64::from(own));
        if let Some(row) = mine {
            subject.holders.put(row);
        }
        LeaseReply {
            status: self.status,
            units,
            ttl: Duration::from_micros(ttl),
            pause: Duration::from_micros(pause),
            others,
            hold: Duration::from_micros(hold),
        }
    }

    /// The row that remembers what was counted of a name, if there may be one.
    fn note_ahead(
        &self,
        clause: &LeaseClause,
        mine: Option<HolderRow>,
        holders: &Holders,
    ) -> Option<HolderRow> {
        if self.status == LeaseStatus::Stale {
            return mine;
        }
        let counted = mine.as_ref().map_or(0, |row| row.units);
        let has_room = mine.is_some() || holders.rows.len() < MOST_HOLDERS;
        has_room.then(|| HolderRow {
            name: clause.name,
            seq: clause.seq,
            is_born: self.status == LeaseStatus::New,
            mask: 0,
            units: counted.max(clause.spent),
            demand: 0,
            end: self.now + length(clause),
        })
    }

    /// A row for a holder that is not known, if it may have one.
    fn born(&self, clause: &LeaseClause, holders: &Holders) -> Option<HolderRow> {
        let group = Holders::group_of(self.plan, self.quotas);
        group.filter(|_| holders.rows.len() < MOST_HOLDERS)?;
        Some(HolderRow {
            name: clause.name,
            seq: clause.seq,
            is_born: true,
            mask: 0,
            units: 0,
            demand: 0,
            end: self.now,
        })
    }

    /// Reserves what is the caller's share, and moves the row's end on. A row whose units are of
    /// other slots or another rate runs to its end.
    fn grant(
        &self,
        clause: &LeaseClause,
        subject: &mut SubjectValue,
        row: &mut HolderRow,
        is_blocked: bool,
    ) -> Granted {
        let nothing = Granted {
            units: 0,
            is_scarce: false,
        };
        let Some(group) = Holders::group_of(self.plan, self.quotas) else {
            return nothing;
        };
        let known = &subject.holders.groups;
        let known = known.iter().find(|known| known.mask == group.mask);
        let is_alike = known.is_none_or(|known| known.intervals == group.intervals);
        if row.units > 0 && !(is_alike && row.mask == group.mask) {
            return nothing;
        }
        row.mask = group.mask;
        // A holder that has not heard of a shorter length spends on until the end that it knows.
        let known_end = if row.units > 0 { row.end } else { self.now };
        row.end = self.end(known_end.max(self.now + length(clause)), subject);
        if clause.want == 0 || is_blocked {
            return nothing;
        }
        let free = self.free(subject).min(u64::from(u32::MAX - row.units));
        let all = subject.holders.demand + u64::from(clause.demand);
        let want = self.want(clause, row);
        let units = match share(clause, want, free, all) {
            units if is_alike && row.end > self.now => units,
            _ => 0,
        };
        reserve(&mut subject.holders, group, u64::from(units));
        Granted {
            units,
            is_scarce: all > free && units < want,
        }
    }

    /// The units that the caller wants, which is what is asked for in a quarter of a lease; of a row
    /// that ends sooner, with a window or slice, no more than are asked for until then: the rest would
    /// count as spent.
    fn want(&self, clause: &LeaseClause, row: &HolderRow) -> u32 {
        let (length, left) = (length(clause), row.end.saturating_sub(self.now));
        if 4 * left >= length {
            return clause.want;
        }
        let soon = u128::from(4 * left) * u128::from(clause.demand) / u128::from(length);
        let soon = u32::try_from(soon).unwrap_or(u32::MAX);
        clause.want.min(soon.saturating_sub(row.units))
    }

    /// The units that all quotas have left.
    fn free(&self, subject: &SubjectValue) -> u64 {
        let meters = self.meters(&subject.holders);
        let meters = meters.iter().zip(&self.quotas.counters);
        let free = meters.map(|(meter, place)| {
            let state = &subject.states[*place];
            meter.available(state, self.now * 1_000)
        });
        free.min().unwrap_or(0)
    }

    /// When the caller's row ends: no later than a window or slice does.
    fn end(&self, latest: u64, subject: &SubjectValue) -> u64 {
        let counters = self.quotas.meters.iter().zip(&self.quotas.counters);
        let ends = counters.filter_map(|(meter, place)| {
            let end = meter.lease_end(&subject.states[*place], self.now * 1_000);
            Some(end? / 1_000)
        });
        ends.fold(latest, u64::min)
    }
}

/// The units that the caller gets of those that are free, where `all` is what everybody wants: a share
/// as if one more like the caller were coming, so alone it gets half. A single one is not worth a lease.
fn share(clause: &LeaseClause, want: u32, free: u64, all: u64) -> u32 {
    let demand = u64::from(clause.demand);
    let share = free * demand / (all + demand).max(1);
    let share = share.min(u64::from(want));
    u32::try_from(share)
        .ok()
        .filter(|units| *units >= 2)
        .unwrap_or(0)
}

fn reserve(holders: &mut Holders, mut group: HolderGroup, units: u64) {
    let mut groups = holders.groups.iter_mut();
    match groups.find(|known| known.mask == group.mask) {
        Some(known) => known.held += units,
        None if units > 0 => {
            group.held = units;
            holders.groups.push(group);
        }
        None => {}
    }
}

fn length(clause: &LeaseClause) -> u64 {
    micros(clause.length.min(LONGEST_LEASE))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
