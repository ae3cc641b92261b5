//! The application of a call to a subject, as the general script does it, for stores that only keep bytes: [`StoreCall::apply`].
//!
//! `crates/store/src/redis/script/decide.lua` does the same, and `node_rows.lua` there what a call does to the rows of a subject.
//! In: the value of a subject with a row for each node that leases or reports, the operations, and the message of the calling
//! node, if there is one. Out: the value after them, the decisions, and the reply to the message.
//!
//! 1. `Settlement::begin` charges the units of rows that have ended, takes the row of the message's name out of the others, and
//!    charges what the message reports (`settle`): spent units of a lease, or units that were spent ahead. A message that
//!    came before changes nothing.
//! 2. The operations run on the quotas' meters with the units held by all rows.
//! 3. `Settlement::finish` grants units if the message requests some, and puts the row back. The reply has the units of the row
//!    and the time until it ends; when units are scarce, how long the node pauses; and how long it may keep a denial.
//!
//! Example: a node holds 50 units, and its message has 20 as spent and wants 40. `begin` charges 20 and leaves 30 in the row,
//! which count as used for everybody else. `finish` adds to them the share that the node is granted.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, time::Duration};

use smallvec::SmallVec;

use super::wire::{
    Applied, LONGEST_LEASE, MOST_ROWS, NodeMessage, NodeReply, NodeReport, Reply, RowStatus,
    StoreCall, Write,
    reply::{self, Run, SubjectReply},
    script_plan::{Plan, ReplyPlan},
    subject_value::{NodeRow, NodeRows, ReservedGroup, SubjectValue, latest_end},
};
use tower_ratelimit_core::{
    algorithm::{CounterIndex, Held, State, States, Verdict, View},
    clock::{ClockReading, Timestamp},
    decision::{Decision, Op},
    limiter::{
        apply_operation::{Apply, OpOutcome, Subject},
        limits_in_force::{Chosen, TierSet},
        tier::TierQuotas,
    },
    quota::Priority,
};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

impl StoreCall<'_> {
    /// Applies the operations at `now` to the value of a key; `None` if the key has no value.
    ///
    /// The result depends on the arguments only: a store may call this again with another value.
    /// The bytes are those that Redis would keep.
    ///
    /// # Errors
    ///
    /// [`ForeignData`](tower_ratelimit_store::StoreErrorKind::ForeignData) if the value was not written by
    /// limiters of these quotas.
    pub fn apply(&self, value: Option<&[u8]>, now: Timestamp) -> Result<Applied, StoreError> {
        let limits = &self.plan.limits;
        let mut own = None;
        let quotas = limits.measured_by(self.tier, &mut own);
        let quotas = quotas.map_err(|_| foreign("there is no such tier"))?;
        let read = SubjectValue::read(self.plan, value);
        let mut subject =
            read.ok_or_else(|| foreign("the value of this key is not one of ours"))?;
        subject.begin(now.as_nanos(), limits, quotas);
        let has_rows = self.message.is_some() || !subject.nodes.rows.is_empty();
        let begin = |subject: &mut _| {
            let quotas = (quotas, self.tier.class());
            Settlement::begin(self.plan, quotas, now.as_micros(), self.message, subject)
        };
        let settlement = has_rows.then(|| begin(&mut subject));
        let held = (settlement.as_ref()).map(|settlement| settlement.held(&subject.nodes));
        let plan = self.plan.of(self.tier);
        let plan = plan.ok_or_else(|| foreign("there is no such tier"))?;
        let mut step = Stepper {
            now,
            limits,
            quotas,
            tier: self.tier,
            keeps_states: self.keeps_states,
            plan: &plan.reply,
            held: held.unwrap_or_default(),
            settlement,
            subject: &mut subject,
            runs: SmallVec::new(),
        };
        for (op, times) in self.runs {
            step.apply_run(op, *times);
        }
        let reply = Reply::decided(step.finish());
        let written = subject.write(self.plan, value, now);
        let write = written.map(|(value, expires_in)| Write { value, expires_in });
        Ok(Applied { reply, write })
    }
}

fn foreign(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::ForeignData, detail)
}

/// Applies the runs of a call, one after another.
struct Stepper<'a> {
    now: Timestamp,
    limits: &'a TierSet,
    quotas: &'a TierQuotas,
    tier: Chosen,
    keeps_states: bool,
    subject: &'a mut SubjectValue,
    settlement: Option<Settlement<'a>>,
    /// The units of each quota that leases hold; empty without a settlement.
    held: Vec<Option<Held>>,
    plan: &'a ReplyPlan,
    /// The decisions so far.
    runs: SmallVec<[Run; 1]>,
}

impl Stepper<'_> {
    /// Applies an operation this many times. Those that change nothing share one run.
    fn apply_run(&mut self, op: &Op, times: usize) {
        let mut left = times;
        while left > 0 {
            let decision = self.run(op);
            let is_as_the_next = match op {
                Op::Peek(_) | Op::Deny(_) => true,
                Op::Acquire(_) | Op::Reserve(_) => decision.charged() == 0,
                _ => false,
            };
            let count = if is_as_the_next { left } else { 1 };
            let counters = self.quotas.counters.iter();
            let states = counters.map(|counter| Cow::Borrowed(&self.subject.states[counter.0]));
            let states = self.keeps_states.then_some(states);
            let run = reply::run_of(self.plan, &self.held, (count, decision), states);
            self.runs.push(run);
            left -= count;
        }
    }

    fn run(&mut self, op: &Op) -> Decision {
        if let Op::Reset = op {
            // Also the counters of other tiers.
            self.subject.states.fill(State::FRESH);
            if let Some(settlement) = &mut self.settlement {
                settlement.reset(&mut self.subject.nodes);
                self.held = settlement.held(&self.subject.nodes);
            }
        }
        let before = self.subject.block();
        let mut block = before;
        let mut key = Subject {
            states: Counted {
                counters: &self.quotas.counters,
                states: &mut self.subject.states,
            },
            block: &mut block,
            verdicts: &mut SmallVec::<[_; 2]>::from_elem(Verdict::FITS, self.quotas.meters.len()),
        };
        let apply = Apply {
            time: ClockReading::alike(self.now),
            limits: self.limits,
            quotas: self.quotas,
            tier: self.tier.index(),
            class: self.tier.class(),
            held: &self.held,
            op: op.as_ref(),
        };
        let room = apply.room(&mut key);
        let cost = apply.cost(room.unwrap_or(0));
        let takes = cost.is_some_and(|cost| apply.judge(&mut key, cost, false));
        let OpOutcome { judgement, blocked } = apply.conclude(&mut key, cost, takes);
        let blocked = Duration::from_micros(blocked.div_ceil(1_000));
        let decision = reply::decision(
            self.plan,
            self.now,
            (judgement.outcome(), judgement.charged),
            (judgement.shed, blocked),
            apply.statuses(&mut key),
        );
        self.subject
            .note(op, before != block, self.now.as_nanos(), self.limits);
        decision
    }

    /// Grants units. The decisions, with the answer to the message, or how long a denial stays cached.
    fn finish(mut self) -> SubjectReply {
        let is_blocked = self.subject.block().left(self.now.as_nanos(), None) > 0;
        let settlement = self.settlement.as_mut();
        let lease = settlement.and_then(|settlement| settlement.finish(self.subject, is_blocked));
        let settlement = self.settlement.as_ref();
        let hold = settlement.and_then(|settlement| settlement.hold_beside(&self.subject.nodes));
        SubjectReply {
            runs: self.runs,
            lease: lease.map(Box::new),
            hold: hold.map(Duration::from_micros),
        }
    }
}

/// The states of a key by counter; as many follow for responses.
struct Counted<'a> {
    counters: &'a [CounterIndex],
    states: &'a mut [State],
}

impl States for Counted<'_> {
    fn state(&mut self, place: usize) -> &mut State {
        let quotas = self.counters.len();
        let first = self.states.len() / 2 * (place / quotas);
        &mut self.states[first + self.counters[place % quotas].0]
    }
}

/// A call about a subject that has rows, or whose node sends a message.
struct Settlement<'a> {
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
    fn begin(
        plan: &'a Plan,
        (quotas, class): (&'a TierQuotas, Priority),
        now: u64,
        message: Option<&NodeMessage>,
        subject: &mut SubjectValue,
    ) -> Self {
        for slot in &plan.slots {
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
        if let Some(message) = message {
            settlement.settle(message, subject);
        }
        settlement
    }

    /// Charges the units that the message reports: those of a lease, which its row reserves, if the message is the next one
    /// of the row; those of eventual mode, whose row reserves nothing, as far as the row does not count them yet,
    /// whether or not there is room.
    fn settle(&mut self, message: &NodeMessage, subject: &mut SubjectValue) {
        let SubjectValue { nodes, states, .. } = subject;
        let now = self.now;
        match (message.report, &mut self.row) {
            (NodeReport::Lease { .. }, None) => {}
            (NodeReport::Lease { spent, back, .. }, Some(row)) => {
                self.is_repeat = row.seq == message.seq;
                self.status = match message.seq.wrapping_sub(row.seq) {
                    0 if row.is_born => RowStatus::New,
                    0 | 1 => RowStatus::Known,
                    _ => RowStatus::Stale,
                };
                if self.status == RowStatus::Known && !self.is_repeat {
                    let spent = spent.min(row.units);
                    let back = back.min(row.units - spent);
                    row.units -= spent + back;
                    // The lease ends later than now, so all of it counts now.
                    nodes.settle(self.plan, states, now, (row.mask, spent.into(), now + 1));
                    nodes.free(row.mask, back.into());
                }
            }
            (NodeReport::Eventual { .. }, Some(row)) if row.mask > 0 => {
                self.status = RowStatus::Stale;
            }
            (NodeReport::Eventual { total, counted }, row) => {
                // The node has the number for a row that the store has forgotten.
                let counted = row.as_ref().map_or(counted, |row| row.units);
                if row.is_some() {
                    self.status = RowStatus::Known;
                }
                let units = u64::from(total.saturating_sub(counted));
                let counters = self.quotas.meters.iter().zip(&self.quotas.counters);
                for (meter, counter) in counters.filter(|(meter, _)| !meter.is_unleased()) {
                    let interval = meter.leased_interval().unwrap_or(0);
                    let (now, state) = (now * 1_000, &mut states[counter.0]);
                    if units > 0 {
                        meter.settle(state, now, now + 1_000, units, interval);
                    }
                }
            }
        }
    }

    /// Whether the message takes effect.
    fn is_new(&self) -> bool {
        self.message.is_some() && self.status != RowStatus::Stale && !self.is_repeat
    }

    /// The units of each quota that leases hold.
    fn held(&self, nodes: &NodeRows) -> Vec<Option<Held>> {
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
    fn reset(&mut self, nodes: &mut NodeRows) {
        let report = self.message.map(|message| message.report);
        if !self.is_new() || matches!(report, Some(NodeReport::Eventual { .. })) {
            return;
        }
        if let Some(row) = &mut self.row {
            nodes.free(row.mask, u64::from(row.units));
            row.units = 0;
        }
    }

    /// Grants or counts units, puts the row back, and makes the reply to the message, if there is one.
    fn finish(&mut self, subject: &mut SubjectValue, is_blocked: bool) -> Option<NodeReply> {
        let message = self.message?;
        let length = length(&message);
        let others = subject.nodes.rows.len();
        let hold = ((others as u64 + 1) * 1_000).clamp(length / 50, length / 4);
        let total = match message.report {
            NodeReport::Lease { .. } => None,
            NodeReport::Eventual { total, .. } => Some(total),
        };
        let group = NodeRows::group_of(self.plan, self.quotas);
        let (mut row, mut is_scarce) = (self.row.take(), false);
        if self.is_new() {
            let has_room = others < MOST_ROWS && (total.is_some() || group.is_some());
            row = row.or_else(|| has_room.then(|| NodeRow::new(message.name, self.now)));
            if let Some(row) = &mut row {
                (row.seq, row.is_born) = (message.seq, self.status == RowStatus::New);
                match message.report {
                    NodeReport::Eventual { total, .. } => {
                        row.units = row.units.max(total);
                        (row.demand, row.end) = (0, self.now + length);
                    }
                    NodeReport::Lease { want, demand, .. } => {
                        // More than there ever is at once would only take from the shares of others.
                        let most = self.quotas.most_units(self.class);
                        row.demand = u64::from(demand).min(most) as u32;
                        let want = if is_blocked { 0 } else { want };
                        is_scarce = group
                            .is_some_and(|group| self.reserve((want, length), group, subject, row));
                    }
                }
            }
        }
        let own = row.as_ref().filter(|_| total.is_none());
        let own = own.map_or(0, |row| row.units);
        let shown = row.as_ref().filter(|_| self.status != RowStatus::Stale);
        let units = shown.map_or(0, |row| row.units);
        let counted = total.filter(|_| self.status != RowStatus::Stale);
        let reply = NodeReply {
            status: self.status,
            units: units.max(counted.unwrap_or(0)),
            ttl: Duration::from_micros(shown.map_or(0, |row| row.end.saturating_sub(self.now))),
            pause: Duration::from_micros(if is_scarce { hold } else { 0 }),
            others: subject.nodes.units().saturating_sub(own.into()),
            hold: Duration::from_micros(hold),
        };
        if let Some(row) = row {
            subject.nodes.put(row);
        }
        Some(reply)
    }

    /// How long a node that sends no message caches a denial at most, in microseconds; `None` while
    /// nodes hold no units that they could return before the denial's time is over.
    fn hold_beside(&self, nodes: &NodeRows) -> Option<u64> {
        if self.message.is_some() || nodes.units() == 0 {
            return None;
        }
        let span = nodes.last_end(self.now) - self.now;
        let rows = nodes.rows.len() as u64;
        Some((rows * 1_000).min(span / 4).max(span / 50).max(1))
    }

    /// Extends the row and reserves the node's share. Returns whether units are scarce: the nodes want more than there is, and
    /// this one gets less than it wants. A row whose units are of other slots or of another rate runs to its end.
    fn reserve(
        &self,
        (want, length): (u32, u64),
        group: ReservedGroup,
        subject: &mut SubjectValue,
        row: &mut NodeRow,
    ) -> bool {
        let (now, SubjectValue { nodes, states, .. }) = (self.now, subject);
        let known = nodes.groups.iter().find(|known| known.mask == group.mask);
        let is_alike = known.is_none_or(|known| known.intervals == group.intervals);
        if row.units > 0 && !(is_alike && row.mask == group.mask) {
            return false;
        }
        row.mask = group.mask;
        // A node that does not know of a shorter length yet spends until the end that it knows.
        let known_end = if row.units > 0 { row.end } else { now };
        row.end = known_end.max(now + length);
        let mut free = u64::from(u32::MAX - row.units);
        let held = self.held(nodes);
        let counters = self.quotas.meters.iter().zip(&self.quotas.counters);
        for (place, (meter, counter)) in counters.enumerate() {
            let (state, view) = (&states[counter.0], View::of(self.class, &held, place));
            free = free.min(meter.available(state, now * 1_000, view));
            // No later than the end of a window or slice.
            let end = meter.lease_end(state, now * 1_000);
            row.end = end.map_or(row.end, |end| row.end.min(end / 1_000));
        }
        if want == 0 {
            return false;
        }
        let (demand, all) = (u64::from(row.demand), nodes.demand + u64::from(row.demand));
        let mut want = u64::from(want);
        let soon = 4 * row.end.saturating_sub(now);
        if soon < length {
            // The rest of the demand in a quarter of a lease would count as spent with the window or slice.
            let soon = (u128::from(soon) * u128::from(demand) / u128::from(length)) as u64;
            want = want.min(soon.saturating_sub(row.units.into()));
        }
        // As if one more node with the same demand were coming, so a node that is alone gets half. A single unit is
        // not worth a lease.
        let share = (free * demand / (all + demand).max(1)).min(want);
        let is_worth_it = share >= 2 && is_alike && row.end > now;
        let share = if is_worth_it { share } else { 0 };
        nodes.reserve(group, share);
        row.units += share as u32;
        all > free && share < want
    }
}

/// How long the row of a message lasts, in microseconds.
fn length(message: &NodeMessage) -> u64 {
    let length = message.length.min(LONGEST_LEASE);
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}
