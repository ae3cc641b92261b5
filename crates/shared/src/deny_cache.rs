//! The deny cache: denials that need no call until their wait is over.
//!
//! In: the decisions that answer a call (`learn`). Out: the same denial for equal operations, with the wait that is left
//! (`answer`). An operation that may return units ends the denials of its subject, and those of calls that left before it
//! are not cached (`forget`). A change of quotas ends all (`begin`).
//!
//! Example: a request is denied for 30 s. Its client tries again after 1 s and is denied for 29 s, without a call. A refund
//! by this node ends that at once; one by another node shows when the wait is over, or sooner where nodes hold units.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::prehashed_key_names::MeasuredSubject;
use tower_ratelimit_core::{
    clock::OsClock,
    decision::{Decision, Op},
    limiter::{call::OpRef, limits_in_force::Chosen},
    lock::unpoisoned,
};

/// Entries in a bucket.
const WAYS: usize = 4;

/// 16,384 entries, of about 300 bytes while they are used.
const BUCKETS: usize = 4_096;

/// Denials until a known instant, so that a denied key costs no round trip.
///
/// A denial states when its cost fits if nothing else is charged. Until then the same cost is
/// denied whatever other nodes charge, unless one of them returns units. Each entry decides
/// operations of its own kind and cost: a reservation's denial starts no block, so an operation
/// that would start one has to reach the store, and the wait of a larger cost is not known. Waits
/// count from before the call left, so an entry never outlives the store's answer; it also ends when the
/// wall clock steps, since waits of this node stand still while the machine sleeps. A limit that varies
/// by the time of day ends entries when it changes, since responses report it.
///
/// A denial is cached only if this node has returned nothing to its key, nor moved a block of it,
/// since the call left: replies may arrive in any order. Subjects are known by a keyed hash of 64
/// bits.
#[derive(Debug)]
pub(super) struct DenyCache {
    /// Made for the first denial or return, since 230 KB are much for a limiter that denies nobody.
    buckets: OnceLock<Box<[Mutex<DenialBucket>]>>,
    /// The generation of the quotas in force: a denial by older ones is not cached.
    generation: AtomicU64,
    /// How many microseconds the wall clock is ahead of this node's waits.
    ahead: fn() -> i64,
}

/// A call that has left, about one subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentCall {
    pub(super) subject: MeasuredSubject,
    /// An instant before the call left.
    pub(super) at: Instant,
}

#[derive(Debug, Default)]
struct DenialBucket {
    denials: [Option<Box<CachedDenial>>; WAYS],
    /// When this node last returned something to a subject of this bucket.
    returned_at: Option<Instant>,
}

#[derive(Debug)]
struct CachedDenial {
    /// The generation of its quotas. It answers nothing in another.
    generation: u64,
    subject: u64,
    tier: Chosen,
    refused: OpRef<'static>,
    /// When its call left.
    at: Instant,
    until: Instant,
    /// How many microseconds the wall clock was ahead when the reply came.
    ahead: i64,
    decision: Decision,
}

/// How long a denial stays cached on a node without a lease: no longer than the store's `hold`,
/// since other nodes may return units later. A block does not depend on them.
pub(super) fn hold_without_lease(decision: &Decision, hold: Option<Duration>) -> Duration {
    let hold = hold.filter(|_| !decision.is_blocked());
    hold.unwrap_or(Duration::MAX)
}

impl DenyCache {
    pub(super) fn new() -> Self {
        Self {
            buckets: OnceLock::new(),
            generation: AtomicU64::new(0),
            ahead: OsClock::ahead,
        }
    }

    /// The cached denial of `op`, with the waits that are left at `now`.
    pub(super) fn answer(
        &self,
        subject: u64,
        tier: Chosen,
        op: &Op,
        now: Instant,
    ) -> Option<Decision> {
        let key = (subject, tier, refused(op)?);
        let bucket = self.known_bucket(subject)?;
        let mut denials = bucket.denials.iter().flatten();
        let denial = denials.find(|denial| denial.key() == key)?;
        let generation = self.generation.load(Ordering::Relaxed);
        if now >= denial.until || denial.generation != generation {
            return None;
        }
        if denial.ahead != (self.ahead)() {
            return None;
        }
        let elapsed = now.saturating_duration_since(denial.at);
        Some(denial.decision.clone().aged(elapsed))
    }

    /// Caches the denials among a call's decisions, each for `hold` at most, and drops those that
    /// its operations may have ended. The decisions come in the order in which the store made them.
    pub(super) fn learn<'a>(
        &self,
        call: &SentCall,
        decisions: impl Iterator<Item = (&'a Op, &'a Decision, Duration)>,
        now: Instant,
    ) {
        let (tag, generation, at) = (call.subject.tag, call.subject.generation, call.at);
        let may_learn = |bucket: &DenialBucket| {
            let is_current = generation == self.generation.load(Ordering::Relaxed);
            is_current && !bucket.has_returned_since(at)
        };
        let known = self.known_bucket(tag);
        let mut known = known.map(|bucket| (may_learn(&bucket), bucket));
        for (op, decision, hold) in decisions {
            if known.is_none() && decision.is_allowed() && !op.may_end_denials() {
                continue;
            }
            let (may_learn, bucket) = known.get_or_insert_with(|| {
                let bucket = self.bucket(tag);
                (may_learn(&bucket), bucket)
            });
            if op.may_end_denials() {
                bucket.forget(tag, now);
                continue;
            }
            if decision.is_blocked() {
                // A denial without the block has a shorter wait.
                bucket.drop_where(tag, |known| !known.decision.is_blocked());
            }
            let denial = CachedDenial::new(call, op, (decision, (self.ahead)()), hold);
            if let Some(denial) = denial.filter(|_| *may_learn) {
                bucket.put(denial);
            }
        }
    }

    /// Drops the denials of a subject, and refuses those of calls that left before.
    pub(super) fn forget(&self, subject: u64, now: Instant) {
        self.bucket(subject).forget(subject, now);
    }

    /// Drops the denials of a subject in one tier: it has units again.
    pub(super) fn drop_denials(&self, subject: u64, tier: Chosen) {
        if let Some(mut bucket) = self.known_bucket(subject) {
            bucket.drop_where(subject, |known| known.tier == tier);
        }
    }

    /// Whether this node may have returned units of the subject, or moved its block, since a call
    /// left.
    pub(super) fn has_returned_since(&self, subject: u64, at: Instant) -> bool {
        let bucket = self.known_bucket(subject);
        bucket.is_some_and(|bucket| bucket.has_returned_since(at))
    }

    /// Ends all denials, and caches those by the quotas of this generation from now on.
    pub(super) fn begin(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The bucket of a subject, if there is any.
    fn known_bucket(&self, subject: u64) -> Option<MutexGuard<'_, DenialBucket>> {
        let buckets = self.buckets.get()?;
        Some(unpoisoned(buckets[subject as usize % BUCKETS].lock()))
    }

    fn bucket(&self, subject: u64) -> MutexGuard<'_, DenialBucket> {
        let empty = || (0..BUCKETS).map(|_| Mutex::default()).collect();
        unpoisoned(self.buckets.get_or_init(empty)[subject as usize % BUCKETS].lock())
    }
}

impl DenialBucket {
    fn has_returned_since(&self, at: Instant) -> bool {
        self.returned_at.is_some_and(|returned| returned >= at)
    }

    fn forget(&mut self, subject: u64, now: Instant) {
        self.drop_where(subject, |_| true);
        self.returned_at = self.returned_at.max(Some(now));
    }

    fn drop_where(&mut self, subject: u64, is_over: impl Fn(&CachedDenial) -> bool) {
        for entry in &mut self.denials {
            entry.take_if(|denial| denial.subject == subject && is_over(denial));
        }
    }

    /// Replaces the denial of the same operation unless that is newer, else takes a free place, that of a
    /// denial by earlier quotas, or that of the denial that ends first.
    fn put(&mut self, denial: CachedDenial) {
        let place = self.denials.iter_mut().min_by_key(|entry| {
            let known = entry.as_deref();
            let is_own = known.is_some_and(|known| known.key() == denial.key());
            let in_force = known.filter(|known| known.generation == denial.generation);
            (!is_own, in_force.map(|known| known.until))
        });
        let Some(place) = place else { return };
        let known = place.as_deref();
        let is_newer =
            known.is_some_and(|known| known.key() == denial.key() && known.at > denial.at);
        if !is_newer {
            *place = Some(Box::new(denial));
        }
    }
}

/// The operation, if a later one like it is denied as well.
fn refused(op: &Op) -> Option<OpRef<'static>> {
    match op {
        Op::Acquire(cost) => Some(OpRef::Acquire(*cost)),
        Op::Reserve(cost) => Some(OpRef::Reserve(*cost)),
        _ => None,
    }
}

impl CachedDenial {
    fn new(
        call: &SentCall,
        op: &Op,
        (decision, ahead): (&Decision, i64),
        hold: Duration,
    ) -> Option<Self> {
        let refused = refused(op)?;
        let wait = decision.retry_after().filter(|_| decision.is_denied())?;
        let wait = wait.min(hold);
        if wait.is_zero() {
            return None;
        }
        Some(Self {
            generation: call.subject.generation,
            subject: call.subject.tag,
            tier: call.subject.chosen,
            refused,
            at: call.at,
            until: call.at.checked_add(wait)?,
            ahead,
            decision: decision.clone(),
        })
    }

    const fn key(&self) -> (u64, Chosen, OpRef<'static>) {
        (self.subject, self.tier, self.refused)
    }
}
