//! The ledger: the leases that this node holds, and what it knows of subjects that it may lease.

mod ahead;
mod answer;
mod counting;
mod counts;
mod demand;
mod entry;
mod held;
mod scarce;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

pub(super) use self::{
    answer::LocalAnswer, counting::AheadStart, entry::LeaseHolder, held::LeasePlace,
};
use self::{
    counts::LeaseCounts,
    held::{HeldLease, LEAST_DEMAND},
    scarce::{until_end, until_full},
    table::{LeaseBucket, WAYS, each_lease},
};
use super::{
    deny_cache::may_end_denials,
    lease::{LeaseClause, LeaseReply, Takes},
    mode::{LeaseTerms, ModeStats},
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op},
    key::Key,
    seed::keyed_hash,
};

/// The leases of a node: at most so many, in buckets of four under a lock.
///
/// Each operation that the store is asked for carries a message about the lease of its subject, if
/// there is one or ought to be, and none is under way. A message that is not answered is sent again
/// with the next one. Time is an argument.
pub(super) struct Ledger<P> {
    terms: LeaseTerms,
    /// Whether denials start blocks, which only the store can.
    has_blocks: bool,
    /// How long an answer is waited for.
    deadline: Duration,
    hasher: SipHasher13,
    buckets: Box<[LeaseBucket<P>]>,
    counts: LeaseCounts,
    /// How many times the quotas were changed.
    generation: AtomicU64,
    /// The names of leases so far.
    names: AtomicU64,
    /// The longest time in microseconds until a subject is forgotten that was used.
    memory: AtomicU64,
    /// The time of the store's last answer in eventual mode, and when it was heard.
    heard: Mutex<Option<(Timestamp, Instant)>>,
}

/// A message that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentMessage {
    pub(super) holder: LeaseHolder,
    pub(super) clause: LeaseClause,
    pub(super) at: Instant,
    /// How often anything had been forgotten in its bucket.
    forgets: u64,
}

/// What goes with a call about a subject.
#[derive(Debug, Clone, Copy)]
pub(super) enum Letter {
    /// Nothing: there is no lease.
    None,
    /// Nothing, since a message about the lease is under way.
    UnderWay,
    /// A message.
    Sent(SentMessage),
}

impl SentMessage {
    const fn new(holder: LeaseHolder, clause: LeaseClause, (at, forgets): (Instant, u64)) -> Self {
        Self {
            holder,
            clause,
            at,
            forgets,
        }
    }
}

impl Letter {
    pub(super) const fn message(&self) -> Option<&SentMessage> {
        match self {
            Self::Sent(message) => Some(message),
            Self::None | Self::UnderWay => None,
        }
    }
}

/// How a denial is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DenialKind {
    /// Units come back one after another.
    Bucket,
    /// Units come back when their time is over, or others give back.
    Window,
}

impl<P> Ledger<P> {
    pub(super) fn new(
        terms: LeaseTerms,
        has_blocks: bool,
        deadline: Duration,
        seed: Option<u64>,
    ) -> Self {
        let count = terms.max_leases.div_ceil(WAYS);
        Self {
            terms,
            has_blocks,
            deadline,
            hasher: keyed_hash(seed),
            buckets: (0..count).map(|_| LeaseBucket::default()).collect(),
            counts: LeaseCounts::default(),
            generation: AtomicU64::new(0),
            names: AtomicU64::new(0),
            memory: AtomicU64::new(u64::MAX),
            heard: Mutex::new(None),
        }
    }

    /// The time between two looks at all leases.
    pub(super) fn tick(&self) -> Duration {
        match self.terms.ahead {
            Some(terms) => terms.interval,
            None => self.terms.length / 8,
        }
    }

    /// A hash of the key, never 0, that nobody outside can tell.
    #[inline]
    pub(super) fn tag(&self, key: &Key) -> u64 {
        self.hasher.hash(key.as_bytes()).max(1)
    }

    /// Decides what can be decided here.
    #[inline]
    pub(super) fn decide(&self, holder: LeaseHolder, op: &Op, now: Instant) -> LocalAnswer {
        let bucket = self.bucket(holder.tag);
        let mut entries = bucket.lock();
        if may_end_denials(op) {
            entries.forget(holder.tag);
        }
        if matches!(op, Op::Reset | Op::Block(_)) {
            entries.close(holder.tag);
        }
        let begins = matches!(op, Op::Acquire(_) | Op::Reserve(_) | Op::AcquireUpTo(_));
        let answer = match entries.entry(holder, begins, now, (&self.terms, Duration::ZERO)) {
            Some(entry) => entry.decide(op, &self.terms, self.has_blocks, now),
            None => LocalAnswer::Ask,
        };
        match answer {
            LocalAnswer::Ask => self.counts.ask(),
            LocalAnswer::Decided(_) | LocalAnswer::Low(_) => entries.local += 1,
        }
        answer
    }

    /// Forgets the denials of a key, and those that answers to what was asked before will tell.
    pub(super) fn forget(&self, tag: u64) {
        self.bucket(tag).lock().forget(tag);
    }

    /// The denial that still holds, if that is all that is to be said.
    pub(super) fn denial(&self, holder: LeaseHolder, op: &Op, now: Instant) -> Option<Decision> {
        let mut entries = self.bucket(holder.tag).lock();
        let entry = entries.find(holder)?;
        match entry.holds(now) {
            true => None,
            false => entry.denial(op, now),
        }
    }

    /// The message that goes with a call about the subject, of which there are `most` units. The call
    /// takes at most so many, if that is known.
    pub(super) fn message(
        &self,
        (holder, takes): (LeaseHolder, Option<Takes>),
        (place, most): (impl FnOnce() -> LeasePlace<P>, u64),
        now: Instant,
    ) -> Letter {
        let bucket = self.bucket(holder.tag);
        let mut entries = bucket.lock();
        let forgets = entries.forgets;
        let Some(entry) = entries.find(holder) else {
            return Letter::None;
        };
        let sent = |clause| Letter::Sent(SentMessage::new(holder, clause, (now, forgets)));
        if self.terms.ahead.is_some() {
            let clause = self.message_ahead(entry, takes, now);
            return clause.map_or(Letter::None, sent);
        }
        entry.demand.keep_below(most, now, self.terms.length);
        let demand = entry.demand.units(now, self.terms.length);
        if let Some(over) = entry.lease.take_if(|lease| self.is_over(lease, now)) {
            self.counts.end(over.unsettled());
        }
        if entry.lease.is_none() {
            if demand < LEAST_DEMAND || holder.generation != self.generation() {
                return Letter::None;
            }
            bucket.has_leases.store(true, Ordering::Relaxed);
        }
        let begin = || Box::new(HeldLease::new(place(), self.name(), now));
        let lease = entry.lease.get_or_insert_with(begin);
        let is_idle = !lease.holds() && demand < LEAST_DEMAND;
        if is_idle || lease.is_under_way(now, self.patience()) {
            return Letter::UnderWay;
        }
        sent(lease.message(demand, &self.terms, &self.counts, now))
    }

    /// A message was not answered: it is sent again.
    pub(super) fn lose(&self, sent: &SentMessage, now: Instant) {
        let mut entries = self.bucket(sent.holder.tag).lock();
        let Some(entry) = entries.find(sent.holder) else {
            return;
        };
        if let Some(ahead) = &mut entry.ahead {
            ahead.lose(&sent.clause);
        }
        if let Some(lease) = &mut entry.lease {
            lease.lose(sent.clause.seq, sent.at);
            lease.be_quiet(now + self.tick());
        }
    }

    /// Learns the store's answer to a message, and how the quotas stood after the `last` of the
    /// operations that went with it. Says how many units are held that
    /// the store takes for used there.
    pub(super) fn hear(
        &self,
        sent: &SentMessage,
        reply: &LeaseReply,
        last: Option<&Decision>,
        now: Instant,
    ) -> u64 {
        if self.terms.ahead.is_some() {
            self.hear_ahead(sent, reply, last, now);
            return 0;
        }
        let mut entries = self.bucket(sent.holder.tag).lock();
        let Some(entry) = entries.find(sent.holder) else {
            return 0;
        };
        let is_forgotten = entry.forgotten > sent.forgets;
        let awaits = |lease: &&mut Box<HeldLease<P>>| lease.awaits(sent.clause.seq, sent.at);
        let Some(lease) = entry.lease.as_mut().filter(awaits) else {
            return 0;
        };
        let granted = lease.hear(reply, (sent.at, now), &self.counts);
        if let Some(last) = last {
            lease.note(last, sent.at, granted.unwrap_or(0));
            // The store grants nothing while it blocks.
            lease.is_closing |= last.is_blocked();
        }
        let full = |last| until_full(last, reply, granted.unwrap_or(0));
        let pause = last.map_or(reply.pause, |last| reply.pause.min(full(last)));
        let pause = pause.min(until_end(reply));
        lease.pause_until(sent.at + pause);
        let own = granted.map_or(0, |granted| lease.left.saturating_sub(granted));
        if granted.is_none() || (lease.is_closing && !lease.holds()) {
            entry.lease = None;
        }
        if !is_forgotten {
            entry.paused_until = (!pause.is_zero()).then(|| sent.at + pause);
        }
        u64::from(own)
    }

    /// The units that are held.
    pub(super) fn held(&self, holder: LeaseHolder) -> u64 {
        let mut entries = self.bucket(holder.tag).lock();
        let lease = entries.find(holder).and_then(|entry| entry.lease.as_ref());
        lease.map_or(0, |lease| u64::from(lease.left))
    }

    /// Holds to a denial that came with an answer, and says for how long; none of an operation that
    /// never fits.
    pub(super) fn hold(
        &self,
        sent: &SentMessage,
        reply: &LeaseReply,
        (op, decision): (&Op, &mut Decision),
        kind: DenialKind,
    ) {
        if !decision.is_denied() {
            return;
        }
        let Some(wait) = decision.retry_after() else {
            return;
        };
        let pause = reply.hold.min(until_end(reply));
        let hold = match kind {
            _ if decision.is_blocked() || self.terms.ahead.is_some() => wait,
            DenialKind::Bucket => {
                let pause = pause.min(until_full(decision, reply, 0));
                wait.min(self.terms.length).max(pause)
            }
            // What this node holds itself was taken for used as well, and it may give that back.
            DenialKind::Window if reply.others > 0 || reply.units > 0 => wait.min(pause),
            DenialKind::Window => wait,
        };
        let hold = match self.terms.remembers_denials {
            true => hold,
            false => hold.min(pause),
        };
        if hold > wait {
            let (place, _) = decision.binding_place();
            *decision = decision.take().denied_for(place, hold);
        }
        let mut entries = self.bucket(sent.holder.tag).lock();
        let entry = entries.find(sent.holder);
        if let Some(entry) = entry.filter(|entry| entry.forgotten <= sent.forgets) {
            entry.remember(op, decision, sent.at, hold);
        }
    }

    /// The leases of which the store has to be told something, though no request asks for it. Those
    /// that are over are dropped.
    pub(super) fn due(&self, now: Instant) -> Vec<(LeaseHolder, LeasePlace<P>)> {
        if let Some(terms) = self.terms.ahead {
            return self.due_ahead(terms, now);
        }
        let mut due = Vec::new();
        each_lease(&self.buckets, |entry, _| {
            let demand = entry.demand.units(now, self.terms.length);
            let old = entry.holder.generation != self.generation();
            let lease = entry.lease.as_mut()?;
            lease.is_closing |= old;
            if self.is_over(lease, now) {
                self.counts.end(lease.unsettled());
                entry.lease = None;
                return None;
            }
            if self.is_due(lease, demand, now) {
                due.push((entry.holder, lease.place.clone()));
            }
            Some(())
        });
        due
    }

    /// Has all that is held given back, and says where that is.
    pub(super) fn close(&self) -> Vec<(LeaseHolder, LeasePlace<P>)> {
        let mut held = Vec::new();
        each_lease(&self.buckets, |entry, _| {
            entry.close();
            if let Some(ahead) = entry.ahead.as_ref().filter(|ahead| ahead.has_news()) {
                held.push((entry.holder, ahead.place.clone()));
            }
            let lease = entry.lease.as_ref().filter(|lease| lease.holds())?;
            held.push((entry.holder, lease.place.clone()));
            Some(())
        });
        held
    }

    /// Whether nothing is left of the lease, or nothing that the store could be told.
    fn is_over(&self, lease: &HeldLease<P>, now: Instant) -> bool {
        let has_no_more = lease.is_closing || lease.has_ended(now);
        (has_no_more && !lease.holds()) || lease.is_lost(now, self.terms.length)
    }

    fn is_due(&self, lease: &HeldLease<P>, demand: u32, now: Instant) -> bool {
        if lease.is_under_way(now, self.patience()) {
            return false;
        }
        if lease.unanswered.is_some() {
            return true;
        }
        // The answer has to come before the end, but a deadline may be longer than the lease.
        let near = (2 * self.deadline).clamp(2 * self.tick(), self.terms.length / 2);
        let since = now.saturating_duration_since(lease.made_at);
        let ends = lease.ends_within(near, now) && since >= near / 2;
        lease.has_surplus(demand) || (lease.holds() && (ends || lease.is_closing))
    }

    pub(super) fn stats(&self) -> ModeStats {
        let local = self.buckets.iter().map(|bucket| bucket.lock().local);
        self.counts.with_local(local.sum())
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// After this time no answer comes any more.
    fn patience(&self) -> Duration {
        2 * self.deadline
    }

    fn name(&self) -> [u8; 8] {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        // Longer than a hash of a key can be told from: no key has the same bytes.
        let bytes = [b"lease".as_slice(), &name.to_ne_bytes()].concat();
        self.hasher.hash(&bytes).to_ne_bytes()
    }

    #[inline]
    fn bucket(&self, tag: u64) -> &LeaseBucket<P> {
        let at = (u128::from(tag) * self.buckets.len() as u128) >> 64;
        &self.buckets[at as usize]
    }
}

impl<P> fmt::Debug for Ledger<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
