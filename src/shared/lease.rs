//! Leased mode: a node reserves units in the store and spends them by itself.
//!
//! In: operations on a subject (`decide_leased`), and replies to the messages about it. Out: decisions, and messages that
//! settle what was spent and request more. In the store, `subject_settlement.rs` charges and grants.
//!
//! 1. The first requests of a subject go to the store. When their demand is worth a lease, the call of the next one carries a
//!    message that requests units (`lease_message`), and the entry becomes a `LeaseState` (`state.rs`).
//! 2. The store reserves a share for this node, in a row of the subject's value with an end (`receive_lease`). Other
//!    nodes see these units as used, so all nodes together never exceed the limit.
//! 3. Requests take units from the lease. The states in the last reply give the numbers of their decisions
//!    (`known.rs`). When few are left, the decision is `Low`, and a message requests more before they run out.
//! 4. An operation that the lease cannot pay goes to the store, unless a denial is cached, or the last reply had the node
//!    pause (`hold`). Only the store can start a block, or grant a part of a cost.
//! 5. A lease that nobody needs, that ends soon or that is of older quotas is due: a message reports and returns its units
//!    (`due_leases`). Those of a node that is gone count as spent when the row ends.
//!
//! Example: a limit of 1,000, two nodes with equal demand. Each gets a share of what is left that leaves room for one node
//! more. A node with 200 units admits 200 requests without a call, and requests more while it still has some.

mod state;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use self::state::LEAST_DEMAND;
pub(super) use self::state::LeaseState;
use crate::{
    decision::{Decision, Op},
    limiter::tier_set::Chosen,
    lock::unpoisoned,
    shared::{
        deny_cache::SentCall,
        hashed_key_names::{KeyPlace, MeasuredSubject},
        known::{Charged, Known},
        ledger::{
            AttachedMessage, EntryState, LeaseEntries, Ledger, LedgerEntry, LocalAnswer, NodeTime,
            each_bucket,
        },
        mode::ModeTerms,
        wire::{
            node_message::{NodeMessage, NodeReply},
            plan::ReplyPlan,
        },
    },
};

impl<P> Ledger<P> {
    /// Charges a lease of the default tier that has many units: all that is done for most requests, which one bucket
    /// decides.
    #[inline]
    pub(in crate::shared) fn charge(
        &self,
        (tag, generation): (u64, u64),
        cost: u64,
        now: Instant,
    ) -> Option<Charged> {
        let subject = MeasuredSubject {
            tag,
            chosen: Chosen::Tier(0),
            generation,
        };
        let ModeTerms::Leased { length, .. } = self.terms.mode else {
            return None;
        };
        let (cost, now) = (u32::try_from(cost).ok()?, self.clock.time(now));
        let mut entries = self.bucket(subject.tag).lock();
        let entry = entries.find(subject)?;
        let EntryState::Lease(lease) = &mut entry.state else {
            return None;
        };
        let charged = lease.charge(cost, now)?;
        entry.demand.add(cost.into(), now, length);
        entries.local += 1;
        Some(charged)
    }

    /// Decides from the units of the lease, a cached denial, or a pause.
    pub(in crate::shared) fn decide_leased(
        &self,
        entries: &mut LeaseEntries<P>,
        (subject, op): (MeasuredSubject, &Op),
        length: Duration,
        now: NodeTime,
    ) -> LocalAnswer {
        let answer = self.decide_by_own_lease(entries, (subject, op), length, now);
        if let LocalAnswer::Decided(decision) | LocalAnswer::Low(decision) = &answer
            && (decision.is_allowed() || decision.is_blocked())
        {
            return answer;
        }
        let lower = entries.decide_by_lower_leases(subject, op, now);
        lower.map_or(answer, LocalAnswer::Decided)
    }

    fn decide_by_own_lease(
        &self,
        entries: &mut LeaseEntries<P>,
        (subject, op): (MeasuredSubject, &Op),
        length: Duration,
        now: NodeTime,
    ) -> LocalAnswer {
        let begins = matches!(op, Op::Acquire(_) | Op::Reserve(_) | Op::AcquireUpTo(_));
        let Some(entry) = entries.entry(subject, begins, now, length) else {
            return LocalAnswer::Ask;
        };
        let class = subject.chosen.class();
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::AcquireUpTo(cost) if *cost > 0 => {
                entry.demand.add(*cost, now, length);
                self.acquire(entry, (op, *cost), length, now)
            }
            Op::Peek(cost) => entry.decide_from_lease(|lease| lease.look(*cost, class, now)),
            Op::Refund(cost, Some(receipt)) => {
                let cost = (*cost).min(receipt.charged());
                entry.decide_from_lease(|lease| lease.unspend((cost, receipt), class, now))
            }
            Op::Settle(cost, receipt) if !self.has_blocks => {
                let charged = receipt.charged();
                entry.decide_from_lease(|lease| match cost.checked_sub(charged) {
                    Some(0) => lease.look(0, class, now),
                    Some(more) => lease.spend(more, class, now),
                    None => lease.unspend((charged - cost, receipt), class, now),
                })
            }
            _ => LocalAnswer::Ask,
        }
    }

    fn acquire(
        &self,
        entry: &mut LedgerEntry<P>,
        (op, cost): (&Op, u64),
        length: Duration,
        now: NodeTime,
    ) -> LocalAnswer {
        if let EntryState::Lease(lease) = &mut entry.state
            && let Some(decision) = lease.spend(cost, entry.subject.chosen.class(), now)
        {
            if !lease.is_low(now) || entry.demand.units(now, length) < LEAST_DEMAND {
                return LocalAnswer::Decided(decision);
            }
            lease.be_quiet(now + length / 8, now);
            return LocalAnswer::Low(decision);
        }
        let MeasuredSubject { tag, chosen, .. } = entry.subject;
        if let Some(denied) = self
            .denials
            .answer(tag, chosen, op, self.clock.instant(now))
        {
            return LocalAnswer::Decided(denied);
        }
        // Only the store can start a block, and grant a part of the cost.
        if self.has_blocks || matches!(op, Op::AcquireUpTo(_)) {
            return LocalAnswer::Ask;
        }
        entry.decide_from_lease(|lease| lease.pause(now))
    }

    /// The next message about a lease; without one, why. `start` is called for a subject that begins
    /// to have one.
    pub(in crate::shared) fn lease_message(
        &self,
        entry: &mut LedgerEntry<P>,
        (length, max_units, most): (Duration, u32, u64),
        start: impl FnOnce() -> (KeyPlace<P>, [u8; 8]),
        now: NodeTime,
    ) -> Result<NodeMessage, AttachedMessage> {
        entry.demand.keep_below(most, now, length);
        let demand = entry.demand.units(now, length);
        if let EntryState::Lease(lease) = &entry.state
            && self.is_over(lease, length, now)
        {
            unpoisoned(self.stats.lock()).ended += u64::from(lease.unsettled());
            entry.state = EntryState::Idle;
        }
        if let EntryState::Idle = entry.state {
            if demand < LEAST_DEMAND || entry.subject.generation != self.generation() {
                return Err(AttachedMessage::None);
            }
            let (place, name) = start();
            entry.state = EntryState::Lease(Box::new(LeaseState::new(place, name, now)));
        }
        let EntryState::Lease(lease) = &mut entry.state else {
            return Err(AttachedMessage::None);
        };
        let is_idle = !lease.holds() && demand < LEAST_DEMAND;
        if is_idle || lease.is_under_way(now, self.patience()) {
            return Err(AttachedMessage::UnderWay);
        }
        Ok(lease.message(demand, (length, max_units), &self.stats, now))
    }

    /// Applies the reply to the message under way. Returns the units held that the decision about
    /// the `last` operation counts as used.
    pub(in crate::shared) fn receive_lease(
        &self,
        call: &SentCall,
        (message, reply): (&NodeMessage, &NodeReply),
        last: Option<(&Arc<ReplyPlan>, &Decision)>,
        now: NodeTime,
    ) -> u64 {
        let mut entries = self.bucket(call.subject.tag).lock();
        let Some(entry) = entries.find(call.subject) else {
            return 0;
        };
        let has_returned = self.denials.has_returned_since(call.subject.tag, call.at);
        let EntryState::Lease(lease) = &mut entry.state else {
            return 0;
        };
        let sent_at = self.clock.time(call.at);
        if !lease.awaits(message.seq, sent_at) {
            return 0;
        }
        let granted = lease.receive(reply, (sent_at, now), message.length, &self.stats);
        if let Some((plan, last)) = last {
            lease.note(Known::new(plan, last), sent_at, granted.unwrap_or(0));
            // The store grants nothing while it blocks.
            lease.is_closing |= last.is_blocked();
        }
        let full = last.and_then(|last| until_full(last, reply, granted.unwrap_or(0)));
        let longest = full.unwrap_or(Duration::MAX).min(reply.until_end());
        let pause = reply.pause.min(longest);
        lease.pause_until(sent_at + pause, has_returned);
        let own = granted.map_or(0, |granted| lease.left.saturating_sub(granted));
        if granted.is_none() || (lease.is_closing && !lease.holds()) {
            entry.state = EntryState::Idle;
        }
        u64::from(own)
    }

    /// The leases with units to return or to settle. Drops those that are over.
    pub(in crate::shared) fn due_leases(
        &self,
        length: Duration,
        now: NodeTime,
    ) -> Vec<(MeasuredSubject, KeyPlace<P>)> {
        let mut due = Vec::new();
        each_bucket(&self.buckets, |entries| {
            for entry in &mut entries.list {
                let demand = entry.demand.units(now, length);
                let EntryState::Lease(lease) = &mut entry.state else {
                    continue;
                };
                lease.is_closing |= entry.subject.generation != self.generation();
                if self.is_over(lease, length, now) {
                    unpoisoned(self.stats.lock()).ended += u64::from(lease.unsettled());
                    entry.state = EntryState::Idle;
                } else if self.is_due(lease, demand, length, now) {
                    due.push((entry.subject, lease.place.clone()));
                }
            }
        });
        due
    }

    /// Whether the lease has no units, or none that the store still reserves.
    fn is_over(&self, lease: &LeaseState<P>, length: Duration, now: NodeTime) -> bool {
        let has_no_more = lease.is_closing || lease.has_ended(now);
        (has_no_more && !lease.holds()) || lease.is_lost(now, length)
    }

    fn is_due(&self, lease: &LeaseState<P>, demand: u32, length: Duration, now: NodeTime) -> bool {
        if lease.is_under_way(now, self.patience()) {
            return false;
        }
        if lease.unanswered.is_some() {
            return true;
        }
        // The reply has to come before the end, and a deadline may be longer than the lease.
        let near = (2 * self.deadline).clamp(2 * self.tick(), length / 2);
        let since = now.since(lease.made_at);
        let ends = lease.end.since(now) < near && since >= near / 2;
        lease.has_surplus(demand) || (lease.holds() && (ends || lease.is_closing))
    }
}

impl<P> LeaseEntries<P> {
    /// Decides from leases of lower classes, whose units serve the classes above them as well. Their own
    /// shares are smaller, so a unit that the store granted to them fits a higher class.
    fn decide_by_lower_leases(
        &mut self,
        subject: MeasuredSubject,
        op: &Op,
        now: NodeTime,
    ) -> Option<Decision> {
        let class = subject.chosen.class();
        let of_class = |entry: &&mut LedgerEntry<P>| {
            let MeasuredSubject { chosen, .. } = entry.subject;
            let is_lower = chosen.class() < class;
            let whole = MeasuredSubject {
                chosen: chosen.in_class(class),
                ..entry.subject
            };
            is_lower && whole == subject
        };
        let lower = self.list.iter_mut().filter(of_class);
        let mut leases = lower.filter_map(|entry| match &mut entry.state {
            EntryState::Lease(lease) => Some(lease),
            EntryState::Idle | EntryState::Eventual(_) => None,
        });
        leases.find_map(|lease| match op {
            Op::Acquire(cost) | Op::Reserve(cost) if *cost > 0 => lease.spend(*cost, class, now),
            Op::Refund(cost, Some(receipt)) => {
                lease.unspend(((*cost).min(receipt.charged()), receipt), class, now)
            }
            _ => None,
        })
    }
}

impl<P> LedgerEntry<P> {
    fn decide_from_lease(
        &mut self,
        decide: impl FnOnce(&mut LeaseState<P>) -> Option<Decision>,
    ) -> LocalAnswer {
        let EntryState::Lease(lease) = &mut self.state else {
            return LocalAnswer::Ask;
        };
        decide(lease).map_or(LocalAnswer::Ask, LocalAnswer::Decided)
    }
}

/// How long a node with a lease caches a denial whose cost fits after `wait`. A bucket gets its units
/// back one after another; a window when their time is over, or when other nodes return some.
pub(in crate::shared) fn hold(
    (plan, decision, wait): (&Arc<ReplyPlan>, &Decision, Duration),
    reply: &NodeReply,
    length: Duration,
) -> Duration {
    let pause = reply.hold.min(reply.until_end());
    match until_full((plan, decision), reply, 0) {
        Some(full) => wait.min(length).max(pause.min(full)),
        // The decision counts the node's own units as used too, and the node may return them.
        None if reply.others > 0 || reply.units > 0 => wait.min(pause),
        None => wait,
    }
}

/// The time until the binding bucket is full, from the decision on, after which units were granted.
/// From then on units get lost: held units count only once they are spent. `None` unless the binding
/// quota is a bucket.
fn until_full(
    (plan, decision): (&Arc<ReplyPlan>, &Decision),
    reply: &NodeReply,
    granted: u32,
) -> Option<Duration> {
    let own = u64::from(reply.units.saturating_sub(granted));
    let place = decision.binding_place();
    Known::new(plan, decision).full_after(place, reply.others.saturating_add(own))
}
