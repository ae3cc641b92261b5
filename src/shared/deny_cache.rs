//! Remembered denials: answers that need no call until their wait is over.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::subject::SubjectName;
use crate::{decision::Decision, decision::Op, limiter::limits::Chosen, lock::unpoisoned};

/// Entries in a bucket.
const WAYS: usize = 4;

/// 16,384 entries, of about 300 bytes while they are used.
const BUCKETS: usize = 4_096;

/// Denials that hold until a known instant, so that a refused subject costs no round trip.
///
/// Each answers its own kind of operation: a reservation's starts no block, so what would start one
/// has to reach the server. A denial says when the same cost passes if nothing else comes. Until
/// then it is denied, whatever other nodes do, unless one of them gives something back. The wait of
/// a larger cost is not told. It is counted from before the question was sent, so an entry never
/// outlives what the server said.
#[derive(Debug)]
pub(super) struct DenyCache {
    buckets: Box<[Mutex<DenialBucket>]>,
    /// The generation of the quotas in force: a denial by older ones is no longer true.
    generation: AtomicU64,
    /// How long any denial is held to at most.
    longest: Duration,
}

/// A call that the server has answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnsweredCall<'a> {
    pub(super) subject: &'a SubjectName,
    pub(super) tier: Chosen,
    /// An instant before it was sent.
    pub(super) at: Instant,
    /// The generation of the quotas that it was asked for.
    pub(super) generation: u64,
    /// How long denials are held to at most: nodes hold units that may come back before.
    pub(super) hold: Option<Duration>,
}

#[derive(Debug, Default)]
struct DenialBucket {
    denials: [Option<Box<Remembered>>; WAYS],
    /// When something was last given back to one of its subjects. Answers to what was asked before
    /// that may come afterwards.
    forgotten_at: Option<Instant>,
}

/// The operation that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Acquire(u64),
    Reserve(u64),
}

#[derive(Debug)]
struct Remembered {
    subject: SubjectName,
    tier: Chosen,
    refused: Refused,
    asked_at: Instant,
    until: Instant,
    decision: Decision,
}

/// Whether `op` may give something back or move a block, after which a denial no longer tells what
/// the server would say.
pub(super) const fn may_end_denials(op: &Op) -> bool {
    match op {
        Op::Refund(..) | Op::Settle(..) | Op::Block(_) | Op::Reset => true,
        Op::Acquire(_)
        | Op::Reserve(_)
        | Op::Deny(_)
        | Op::AcquireUpTo(_)
        | Op::Peek(_)
        | Op::Hit(_)
        | Op::Count(_) => false,
    }
}

impl DenyCache {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Mutex::default()).collect(),
            generation: AtomicU64::new(0),
            longest,
        }
    }

    /// The known answer to `op` at `now`, with waits that have become shorter.
    pub(super) fn answer(
        &self,
        subject: &SubjectName,
        tier: Chosen,
        op: &Op,
        now: Instant,
    ) -> Option<Decision> {
        let refused = Refused::by(op)?;
        let bucket = self.bucket(subject);
        let denial = bucket.denials.iter().flatten().find(|denial| {
            denial.subject == *subject && denial.tier == tier && denial.refused == refused
        })?;
        if now >= denial.until {
            return None;
        }
        let elapsed = now.saturating_duration_since(denial.asked_at);
        Some(denial.decision.clone().aged(elapsed))
    }

    /// Learns what the server answered to `op`: remembers a denial that holds, and forgets all that
    /// is known of a subject that something was given back to.
    pub(super) fn learn(&self, asked: &AnsweredCall<'_>, op: &Op, decision: &Decision) {
        if may_end_denials(op) {
            return self.forget(asked.subject, asked.at);
        }
        if decision.is_blocked() {
            // A denial that knows of no block has a shorter wait.
            self.forget_where(asked.subject, |known| !known.decision.is_blocked());
        }
        if let Some(denial) = Remembered::of(asked, op, decision, self.longest) {
            self.put(denial, asked.generation);
        }
    }

    fn put(&self, denial: Remembered, generation: u64) {
        let mut bucket = self.bucket(&denial.subject);
        // Read under the lock: `begin` empties this bucket after it has changed the number.
        if generation != self.generation.load(Ordering::Relaxed)
            || bucket.forgotten_at > Some(denial.asked_at)
        {
            return;
        }
        // The denial's own entry, a free one, or the one that ends first.
        let place = bucket.denials.iter_mut().min_by_key(|entry| {
            let entry = entry.as_deref();
            let own = entry.is_some_and(|known| known.is_about(&denial));
            (!own, entry.map(|known| known.until))
        });
        let is_newer =
            |known: &Remembered| known.is_about(&denial) && known.asked_at > denial.asked_at;
        if let Some(place) = place
            && !place.as_deref().is_some_and(is_newer)
        {
            *place = Some(Box::new(denial));
        }
    }

    /// Forgets all that is known of the subject, and what answers from before this time will tell.
    pub(super) fn forget(&self, subject: &SubjectName, at: Instant) {
        self.forget_where(subject, |_| true);
        let mut bucket = self.bucket(subject);
        bucket.forgotten_at = bucket.forgotten_at.max(Some(at));
    }

    fn forget_where(&self, subject: &SubjectName, is_over: impl Fn(&Remembered) -> bool) {
        for entry in &mut self.bucket(subject).denials {
            entry.take_if(|denial| denial.subject == *subject && is_over(denial));
        }
    }

    /// Forgets everything, and goes on with the quotas of this generation.
    pub(super) fn begin(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
        for bucket in &self.buckets {
            *unpoisoned(bucket.lock()) = Default::default();
        }
    }

    fn bucket(&self, subject: &SubjectName) -> MutexGuard<'_, DenialBucket> {
        let hash = subject.hash() as usize;
        unpoisoned(self.buckets[hash % BUCKETS].lock())
    }
}

impl Refused {
    /// The question, if its answer can be remembered.
    const fn by(op: &Op) -> Option<Self> {
        match op {
            Op::Acquire(cost) => Some(Self::Acquire(*cost)),
            Op::Reserve(cost) => Some(Self::Reserve(*cost)),
            _ => None,
        }
    }
}

impl Remembered {
    fn of(
        asked: &AnsweredCall<'_>,
        op: &Op,
        decision: &Decision,
        longest: Duration,
    ) -> Option<Self> {
        let refused = Refused::by(op)?;
        let wait = decision.retry_after().filter(|_| decision.is_denied())?;
        // A block lasts, whoever gives units back.
        let hold = asked.hold.filter(|_| !decision.is_blocked());
        let wait = hold.map_or(wait, |hold| wait.min(hold)).min(longest);
        Some(Self {
            subject: asked.subject.clone(),
            tier: asked.tier,
            refused,
            asked_at: asked.at,
            until: asked.at.checked_add(wait)?,
            decision: decision.clone(),
        })
    }

    fn is_about(&self, other: &Self) -> bool {
        (self.tier, self.refused) == (other.tier, other.refused) && self.subject == other.subject
    }
}
