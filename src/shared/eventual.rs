//! Eventual mode: a node spends units by itself and reports them to the store afterwards.
//!
//! In: operations on a subject (`decide_eventual`), and the replies to its reports. Out: decisions, and reports of what was
//! spent. In the store, `subject_settlement.rs` charges reports whether or not there is room.
//!
//! 1. A subject that this node has never seen is assumed to be unused, and the node decides at once. Before the first
//!    reply of the store, or if the node may have lost an entry of the subject, the operation goes to the store.
//! 2. `unreported.rs` decides by the last reply, later, with the units that were spent since. The node may be ahead of
//!    the store by a number of units; what exceeds that goes to the store.
//! 3. Each interval a report goes to the store for every subject with news (`due_reports`); calls about the subject carry
//!    one as well. It has the total under one name, and the store charges what it has not counted yet, so a report may
//!    arrive twice or not at all.
//! 4. The reply has the state with the units of all nodes (`receive_count`). It ends cached denials if there are units
//!    again. A blocked subject is left to the store.
//!
//! Example: 100 a minute on two nodes. Both admit 80 requests of a key in the same interval, and report them. The store
//! counts 160, and both deny from then on: the limit is exceeded by what the nodes spent between two replies.

mod unreported;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

pub(super) use self::unreported::Unreported;
use crate::{
    clock::Timestamp,
    decision::{Decision, Op},
    lock::unpoisoned,
    shared::{
        deny_cache::SentCall,
        hashed_key_names::{KeyPlace, MeasuredSubject},
        known::Known,
        ledger::{
            EntryState, LeaseBucket, LeaseEntries, Ledger, LedgerEntry, LocalAnswer, NodeTime,
            each_bucket,
        },
        mode::ModeTerms,
        wire::{
            node_message::{NodeMessage, NodeReply},
            plan::ReplyPlan,
        },
    },
};

/// The time over which the demand for a subject is counted: entries with the least are evicted.
const DEMAND_SPAN: Duration = Duration::from_secs(1);

impl<P> Ledger<P> {
    /// The store's time; `None` before its first reply.
    fn store_time(&self, now: NodeTime) -> Option<Timestamp> {
        let (time, at) = (*unpoisoned(self.store_clock.lock()))?;
        Some(time.saturating_add(now.since(at)))
    }

    /// Decides by the last reply and the units spent since. `place` and `fresh`, the
    /// status of an unused subject at the store's time, are called for a subject without an entry.
    pub(in crate::shared) fn decide_eventual(
        &self,
        (bucket, entries): (&LeaseBucket<P>, &mut LeaseEntries<P>),
        (subject, op): (MeasuredSubject, &Op),
        now: NodeTime,
        (place, fresh): (
            impl FnOnce() -> KeyPlace<P>,
            impl FnOnce(Timestamp) -> Option<Known>,
        ),
    ) -> LocalAnswer {
        let ModeTerms::Eventual { interval, ahead } = self.terms.mode else {
            return LocalAnswer::Ask;
        };
        let cost = match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::AcquireUpTo(cost) => *cost,
            _ => 0,
        };
        let memory = self.memory();
        let is_new = is_new(entries, (subject, op), memory, now);
        let Some(entry) = entry(entries, subject, cost > 0, (memory, now)) else {
            return LocalAnswer::Ask;
        };
        entry.demand.add(cost, now, DEMAND_SPAN);
        if cost > 0 && matches!(entry.state, EntryState::Idle) {
            bucket.has_units.store(true, Ordering::Relaxed);
            let time = self.store_time(now).filter(|_| is_new);
            let started = (place(), self.name());
            let fresh = time.and_then(fresh);
            let unreported = Unreported::new(started, (interval, ahead), fresh, now);
            entry.state = EntryState::Eventual(Box::new(unreported));
        }
        let MeasuredSubject { tag, chosen, .. } = subject;
        let cached = || {
            self.denials
                .answer(tag, chosen, op, self.clock.instant(now))
        };
        entry.decide_eventual(op, cached, now)
    }

    /// Applies the reply to a report.
    pub(in crate::shared) fn receive_count(
        &self,
        call: &SentCall,
        reply: (&NodeMessage, &NodeReply),
        last: Option<(&Arc<ReplyPlan>, &Decision)>,
        now: NodeTime,
    ) {
        if let Some((_, last)) = last {
            *unpoisoned(self.store_clock.lock()) = Some((last.decided_at(), now));
        }
        let MeasuredSubject { tag, chosen, .. } = call.subject;
        let has_units = last.is_some_and(|(_, last)| last.remaining() > Some(0));
        if has_units && !self.denials.has_returned_since(tag, call.at) {
            self.denials.drop_denials(tag, chosen);
        }
        let mut entries = self.bucket(tag).lock();
        let Some(entry) = entries.find(call.subject) else {
            return;
        };
        let EntryState::Eventual(unreported) = &mut entry.state else {
            return;
        };
        // Only the store decides about a blocked subject.
        if last.is_some_and(|(_, last)| last.is_blocked()) {
            unreported.forget();
        }
        let last = last.filter(|(_, last)| !last.is_blocked());
        let known = last.map(|(plan, last)| Known::new(plan, last));
        unreported.receive(reply, known, now, (&self.stats, || self.name()));
    }

    /// The subjects with units to report. Drops those of older quotas, and fresh ones, once all of
    /// their units are counted.
    pub(in crate::shared) fn due_reports(
        &self,
        now: NodeTime,
    ) -> Vec<(MeasuredSubject, KeyPlace<P>)> {
        let mut due = Vec::new();
        let memory = self.memory();
        each_bucket(&self.buckets, |entries| {
            let mut is_in_doubt = false;
            for entry in &mut entries.list {
                let is_unknown = entry.state.is_unknown();
                let is_old = entry.subject.generation != self.generation();
                let EntryState::Eventual(unreported) = &mut entry.state else {
                    continue;
                };
                if unreported.is_due(now) {
                    due.push((entry.subject, unreported.place.clone()));
                } else if !unreported.has_news() && (is_old || !unreported.matters(now)) {
                    entry.state = EntryState::Idle;
                    is_in_doubt |= is_old || is_unknown;
                }
            }
            if is_in_doubt {
                entries.doubt(memory, now);
            }
        });
        due
    }
}

/// Whether the subject is new, as far as this node knows. Notes operations that take or block
/// without an entry.
fn is_new<P>(
    entries: &mut LeaseEntries<P>,
    (subject, op): (MeasuredSubject, &Op),
    memory: Duration,
    now: NodeTime,
) -> bool {
    let mut own = entries.list.iter().filter(|own| own.subject == subject);
    let is_counted = own.any(|own| matches!(own.state, EntryState::Eventual(_)));
    match op {
        Op::Block(length) => entries.doubt(memory.max(*length), now),
        Op::Hit(_) | Op::Spend(_) | Op::Settle(..) if !is_counted => entries.doubt(memory, now),
        _ => {}
    }
    // In another tier, or by older quotas, units of it were spent already.
    let is_other = |own: &LedgerEntry<P>| own.subject != subject && own.subject.tag == subject.tag;
    let is_known = is_counted || entries.list.iter().any(is_other);
    !is_known && !entries.is_in_doubt(now)
}

/// The entry of this subject; a new one if it `begins` and there is room. Without room, or when an
/// entry whose units the store alone knows is evicted, the bucket is in doubt.
fn entry<P>(
    entries: &mut LeaseEntries<P>,
    subject: MeasuredSubject,
    begins: bool,
    (memory, now): (Duration, NodeTime),
) -> Option<&mut LedgerEntry<P>> {
    if begins && entries.find(subject).is_none() {
        let place = entries.room(now, DEMAND_SPAN);
        let evicted = place.and_then(|place| entries.list.get(place));
        if place.is_none() || evicted.is_some_and(|evicted| evicted.state.is_unknown()) {
            entries.doubt(memory, now);
        }
    }
    entries.entry(subject, begins, now, DEMAND_SPAN)
}

impl<P> LedgerEntry<P> {
    fn decide_eventual(
        &mut self,
        op: &Op,
        cached: impl FnOnce() -> Option<Decision>,
        now: NodeTime,
    ) -> LocalAnswer {
        let EntryState::Eventual(unreported) = &mut self.state else {
            return cached().map_or(LocalAnswer::Ask, LocalAnswer::Decided);
        };
        // Only the store grants a part of the cost.
        let all_or_ask = |answer: LocalAnswer| match answer {
            LocalAnswer::Decided(decision) | LocalAnswer::Low(decision) if decision.is_denied() => {
                LocalAnswer::Ask
            }
            taken => taken,
        };
        let decided =
            |decision: Option<Decision>| decision.map_or(LocalAnswer::Ask, LocalAnswer::Decided);
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) if *cost > 0 => {
                unreported.acquire(*cost, cached, now)
            }
            Op::AcquireUpTo(most) if *most > 0 => {
                all_or_ask(unreported.acquire(*most, || None, now))
            }
            Op::Refund(cost, Some(receipt)) => {
                let cost = (*cost).min(receipt.charged());
                decided(unreported.unspend(cost, receipt, now))
            }
            Op::Settle(cost, receipt) => match cost.checked_sub(receipt.charged()) {
                Some(0) => decided(unreported.look(now)),
                Some(more) => all_or_ask(unreported.acquire(more, || None, now)),
                None => decided(unreported.unspend(receipt.charged() - cost, receipt, now)),
            },
            _ => LocalAnswer::Ask,
        }
    }
}
