//! The ledger in eventual mode.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;

use super::{
    Ledger, SentMessage,
    ahead::{AheadCount, AheadNow},
    answer::LocalAnswer,
    entry::{LeaseEntry, LeaseHolder},
    held::LeasePlace,
    table::each_lease,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op},
    error::ConfigError,
    limiter::limits::Limits,
    lock::unpoisoned,
    shared::{
        deny_cache::may_end_denials,
        lease::{LeaseClause, LeaseReply, Takes},
        mode::AheadTerms,
    },
};

/// The beginning of what is counted of a subject.
pub(in crate::shared) struct AheadStart<P> {
    pub(in crate::shared) place: LeasePlace<P>,
    /// How the quotas stand of a subject that was never seen.
    pub(in crate::shared) fresh: Option<Decision>,
}

impl<P> Ledger<P> {
    /// The terms of eventual mode, if it is in that.
    #[inline]
    pub(in crate::shared) const fn ahead(&self) -> Option<AheadTerms> {
        self.terms.ahead
    }

    /// Whether it can go on with these limits.
    ///
    /// # Errors
    ///
    /// When they can not be shared in its mode.
    pub(in crate::shared) fn check(&self, limits: &Limits) -> Result<(), ConfigError> {
        self.terms.check(limits)
    }

    /// Goes on with the quotas of this generation, of which a subject remembers its use for so long
    /// at most: older leases are only given back.
    pub(in crate::shared) fn begin(&self, generation: u64, memory: Duration) {
        let memory = u64::try_from(memory.as_micros()).unwrap_or(u64::MAX);
        // Values of the generations before may be of longer quotas.
        let longest = self.memory.load(Ordering::Relaxed);
        let longest = if generation == 0 { 0 } else { longest };
        self.memory.store(memory.max(longest), Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// How long a subject remembers at most that it was used.
    fn memory(&self) -> Duration {
        Duration::from_micros(self.memory.load(Ordering::Relaxed))
    }

    /// The store's time, if it has ever answered.
    pub(in crate::shared) fn store_time(&self, now: Instant) -> Option<Timestamp> {
        let (time, at) = (*unpoisoned(self.heard.lock()))?;
        Some(time.saturating_add(now.saturating_duration_since(at)))
    }

    /// Decides what can be decided here in eventual mode.
    pub(in crate::shared) fn decide_ahead(
        &self,
        (holder, terms): (LeaseHolder, AheadTerms),
        op: &Op,
        now: Instant,
        start: impl FnOnce() -> AheadStart<P>,
    ) -> LocalAnswer {
        let bucket = self.bucket(holder.tag);
        let mut entries = bucket.lock();
        if may_end_denials(op) {
            entries.forget(holder.tag);
        }
        if matches!(op, Op::Reset | Op::Block(_)) {
            entries.close(holder.tag);
        }
        let cost = match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::AcquireUpTo(cost) => *cost,
            _ => 0,
        };
        let memory = self.memory();
        let is_new = entries.is_new(holder, op, (memory, now));
        let entry = entries.entry(holder, cost > 0, now, (&self.terms, memory));
        let answer = entry.map_or(LocalAnswer::Ask, |entry| {
            entry.demand.add(cost, now, self.terms.length);
            if cost > 0 && entry.ahead.is_none() {
                bucket.has_leases.store(true, Ordering::Relaxed);
                let AheadStart { place, fresh } = start();
                let fresh = fresh.filter(|_| is_new);
                let ahead = AheadCount::new(place, self.name(), fresh, now);
                entry.ahead = Some(Box::new(ahead));
            }
            entry.decide_ahead(op, AheadNow { terms, now })
        });
        match answer {
            LocalAnswer::Ask => self.counts.ask(),
            LocalAnswer::Decided(_) | LocalAnswer::Low(_) => entries.local += 1,
        }
        answer
    }

    /// The message of eventual mode that goes with a call about the subject, which takes at most so
    /// many units, if that is known.
    pub(super) fn message_ahead(
        &self,
        entry: &mut LeaseEntry<P>,
        takes: Option<Takes>,
        now: Instant,
    ) -> Option<LeaseClause> {
        let ahead = entry.ahead.as_mut()?;
        Some(ahead.message((takes, self.patience()), &self.counts, now))
    }

    /// Learns the store's answer to a message of eventual mode.
    pub(super) fn hear_ahead(
        &self,
        sent: &SentMessage,
        reply: &LeaseReply,
        last: Option<&Decision>,
        now: Instant,
    ) {
        if let Some(last) = last {
            *unpoisoned(self.heard.lock()) = Some((last.decided_at(), now));
        }
        let mut entries = self.bucket(sent.holder.tag).lock();
        let Some(entry) = entries.find(sent.holder) else {
            return;
        };
        let is_true = entry.forgotten <= sent.forgets;
        if is_true && last.is_some_and(|last| last.remaining() > Some(0)) {
            entry.let_pass();
        }
        let Some(ahead) = &mut entry.ahead else {
            return;
        };
        // About a subject that is blocked the store is asked.
        if last.is_some_and(Decision::is_blocked) {
            ahead.forget();
        }
        let last = last.filter(|last| !last.is_blocked());
        let heard = (&sent.clause, reply);
        ahead.hear(heard, last.cloned(), now, (&self.counts, || self.name()));
    }

    /// The subjects of which the store has to be told what was spent. Those of older quotas are
    /// dropped when it was.
    pub(super) fn due_ahead(
        &self,
        terms: AheadTerms,
        now: Instant,
    ) -> Vec<(LeaseHolder, LeasePlace<P>)> {
        let mut due = Vec::new();
        let memory = self.memory();
        each_lease(&self.buckets, |entry, doubt| {
            let is_unknown = entry.is_unknown();
            let is_old = entry.holder.generation != self.generation();
            let ahead = entry.ahead.as_mut()?;
            if ahead.is_due(AheadNow { terms, now }) {
                due.push((entry.holder, ahead.place.clone()));
            } else if !ahead.has_news() && (is_old || !ahead.matters(now)) {
                entry.ahead = None;
                if is_old || is_unknown {
                    doubt.last(memory, now);
                }
            }
            Some(())
        });
        due
    }
}
