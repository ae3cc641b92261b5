//! Entries: all that a node knows of one subject that it may lease.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::mode::LeaseTerms,
    ahead::{AheadCount, AheadNow},
    answer::LocalAnswer,
    demand::RecentDemand,
    held::{HeldLease, LEAST_DEMAND},
};
use crate::{
    decision::{Decision, Op},
    limiter::limits::Chosen,
};

/// The subject of a lease as the node tells it from others: by the hash of its key, the quotas that
/// measure it, and how many times those were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shared) struct LeaseHolder {
    pub(in crate::shared) tag: u64,
    pub(in crate::shared) chosen: Chosen,
    pub(in crate::shared) generation: u64,
}

/// All that a node knows of one subject.
#[derive(Debug)]
pub(super) struct LeaseEntry<P> {
    pub(super) holder: LeaseHolder,
    pub(super) demand: RecentDemand,
    /// Until then the node denies what it holds too little for.
    pub(super) paused_until: Option<Instant>,
    denial: Option<Box<HeldDenial>>,
    /// Answers to what was asked before this time, as the bucket counts it, tell of no denial.
    pub(super) forgotten: u64,
    pub(super) lease: Option<Box<HeldLease<P>>>,
    /// The units that were spent without one, in eventual mode.
    pub(super) ahead: Option<Box<AheadCount<P>>>,
}

/// A denial that holds until a known instant.
#[derive(Debug)]
struct HeldDenial {
    op: Op,
    at: Instant,
    until: Instant,
    decision: Decision,
}

impl<P> LeaseEntry<P> {
    pub(super) const fn new(holder: LeaseHolder, forgotten: u64, now: Instant) -> Self {
        Self {
            holder,
            demand: RecentDemand::new(now),
            paused_until: None,
            denial: None,
            forgotten,
            lease: None,
            ahead: None,
        }
    }

    /// Whether a lease would be lost with the entry, or what was spent without one.
    pub(super) fn holds(&self, now: Instant) -> bool {
        let is_ahead = self.ahead.as_ref().is_some_and(|ahead| ahead.matters(now));
        is_ahead || self.lease.as_ref().is_some_and(|lease| lease.holds())
    }

    /// Whether the store is to be asked about the subject, of which this node has used units.
    pub(super) fn is_unknown(&self) -> bool {
        let ahead = self.ahead.as_ref();
        ahead.is_some_and(|ahead| ahead.has_no_view())
    }

    /// Decides in eventual mode.
    pub(super) fn decide_ahead(&mut self, op: &Op, at: AheadNow) -> LocalAnswer {
        let now = at.now;
        if let Some(denied) = self.denial(op, now) {
            let ahead = self.ahead.as_mut();
            let refresh = ahead.map(|ahead| ahead.refresh(denied.clone(), at));
            return refresh.unwrap_or(LocalAnswer::Decided(denied));
        }
        let Some(ahead) = &mut self.ahead else {
            return LocalAnswer::Ask;
        };
        // A part of what was asked for is the store's to give.
        let all_or_ask = |answer: LocalAnswer| match answer {
            LocalAnswer::Decided(told) | LocalAnswer::Low(told) if told.is_denied() => {
                LocalAnswer::Ask
            }
            taken => taken,
        };
        let give = |told: Option<Decision>| told.map_or(LocalAnswer::Ask, LocalAnswer::Decided);
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) if *cost > 0 => ahead.acquire(*cost, at),
            Op::AcquireUpTo(most) if *most > 0 => all_or_ask(ahead.acquire(*most, at)),
            Op::Refund(cost, Some(receipt)) => {
                let cost = (*cost).min(receipt.charged());
                give(ahead.unspend(cost, receipt, now))
            }
            Op::Settle(cost, receipt) => match cost.checked_sub(receipt.charged()) {
                Some(0) => give(ahead.look(now)),
                Some(more) => all_or_ask(ahead.acquire(more, at)),
                None => give(ahead.unspend(receipt.charged() - cost, receipt, now)),
            },
            _ => LocalAnswer::Ask,
        }
    }

    pub(super) fn decide(
        &mut self,
        op: &Op,
        terms: &LeaseTerms,
        has_blocks: bool,
        now: Instant,
    ) -> LocalAnswer {
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::AcquireUpTo(cost) if *cost > 0 => {
                self.demand.add(*cost, now, terms.length);
                self.acquire(op, *cost, terms, has_blocks, now)
            }
            Op::Peek(cost) => self.answer(|lease| lease.look(*cost, now)),
            Op::Refund(cost, Some(receipt)) => {
                let cost = (*cost).min(receipt.charged());
                self.answer(|lease| lease.unspend(cost, receipt, now))
            }
            Op::Settle(cost, receipt) if !has_blocks => {
                let charged = receipt.charged();
                self.answer(|lease| match cost.checked_sub(charged) {
                    Some(0) => lease.look(0, now),
                    Some(more) => lease.spend(more, now),
                    None => lease.unspend(charged - cost, receipt, now),
                })
            }
            _ => LocalAnswer::Ask,
        }
    }

    fn answer(
        &mut self,
        decide: impl FnOnce(&mut HeldLease<P>) -> Option<Decision>,
    ) -> LocalAnswer {
        let decision = self.lease.as_mut().and_then(|lease| decide(lease));
        decision.map_or(LocalAnswer::Ask, LocalAnswer::Decided)
    }

    #[inline]
    fn acquire(
        &mut self,
        op: &Op,
        cost: u64,
        terms: &LeaseTerms,
        has_blocks: bool,
        now: Instant,
    ) -> LocalAnswer {
        if let Some(lease) = &mut self.lease
            && let Some(decision) = lease.spend(cost, now)
        {
            let is_low = lease.is_low(now) && self.paused_until.is_none_or(|until| now >= until);
            if !is_low || self.demand.units(now, terms.length) < LEAST_DEMAND {
                return LocalAnswer::Decided(decision);
            }
            lease.be_quiet(now + terms.length / 8);
            return LocalAnswer::Low(decision);
        }
        if let Some(denied) = self.denial(op, now) {
            return LocalAnswer::Decided(denied);
        }
        // Only the store can start a block, and give what there is of more than is left.
        if has_blocks || matches!(op, Op::AcquireUpTo(_)) {
            return LocalAnswer::Ask;
        }
        self.pause(now)
    }

    /// The denial for the time in which the store is not to be asked for more.
    fn pause(&self, now: Instant) -> LocalAnswer {
        let wait = self
            .paused_until
            .and_then(|until| until.checked_duration_since(now));
        let wait = wait.filter(|wait| !wait.is_zero());
        let denied = wait.and_then(|wait| self.lease.as_ref()?.deny(now, wait));
        denied.map_or(LocalAnswer::Ask, LocalAnswer::Decided)
    }

    /// The denial of the same operation that still holds.
    pub(super) fn denial(&self, op: &Op, now: Instant) -> Option<Decision> {
        let denial = self.denial.as_ref()?;
        let holds = denial.op == *op && now < denial.until;
        holds.then(|| {
            let elapsed = now.saturating_duration_since(denial.at);
            denial.decision.clone().aged(elapsed)
        })
    }

    /// Remembers a denial that holds for this long from the question on.
    pub(super) fn remember(&mut self, op: &Op, decision: &Decision, at: Instant, hold: Duration) {
        if matches!(op, Op::Acquire(_) | Op::Reserve(_)) {
            self.denial = Some(Box::new(HeldDenial {
                op: op.clone(),
                at,
                until: at + hold,
                decision: decision.clone(),
            }));
        }
    }

    /// There are units again.
    pub(super) fn let_pass(&mut self) {
        self.denial = None;
    }

    /// Forgets what it was told not to ask for, at this time.
    pub(super) fn forget(&mut self, time: u64) {
        self.denial = None;
        self.paused_until = None;
        self.forgotten = time;
    }

    /// Spends nothing any more, and gives back.
    pub(super) fn close(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.forget();
        }
        if let Some(lease) = &mut self.lease {
            lease.is_closing = true;
        }
    }
}
