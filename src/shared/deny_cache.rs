//! Remembered denials: answers that need no call until their wait is over.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
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
}

type DenialBucket = [Option<Box<Remembered>>; WAYS];

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
        | Op::Hit(_) => false,
    }
}

impl DenyCache {
    pub(super) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Mutex::default()).collect(),
            generation: AtomicU64::new(0),
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
        let denial = bucket.iter().flatten().find(|denial| {
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
            return self.forget(asked.subject);
        }
        if decision.is_blocked() {
            // A denial that knows of no block has a shorter wait.
            self.forget_where(asked.subject, |known| !known.decision.is_blocked());
        }
        if let Some(denial) = Remembered::of(asked, op, decision) {
            self.put(denial, asked.generation);
        }
    }

    fn put(&self, denial: Remembered, generation: u64) {
        let mut bucket = self.bucket(&denial.subject);
        // Read under the lock: `begin` empties this bucket after it has changed the number.
        if generation != self.generation.load(Ordering::Relaxed) {
            return;
        }
        // The denial's own entry, a free one, or the one that ends first.
        let place = bucket.iter_mut().min_by_key(|entry| {
            let entry = entry.as_deref();
            let own = entry.is_some_and(|known| known.is_about(&denial));
            (!own, entry.map(|known| known.until))
        });
        if let Some(place) = place {
            *place = Some(Box::new(denial));
        }
    }

    /// Forgets all that is known of the subject.
    pub(super) fn forget(&self, subject: &SubjectName) {
        self.forget_where(subject, |_| true);
    }

    fn forget_where(&self, subject: &SubjectName, is_over: impl Fn(&Remembered) -> bool) {
        for entry in self.bucket(subject).iter_mut() {
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
    fn of(asked: &AnsweredCall<'_>, op: &Op, decision: &Decision) -> Option<Self> {
        let refused = Refused::by(op)?;
        let wait = decision.retry_after().filter(|_| decision.is_denied())?;
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

#[cfg(test)]
mod tests {
    use std::{sync::LazyLock, time::Duration};

    use super::{super::subject::SubjectNames, *};
    use crate::{
        clock::Timestamp,
        decision::{Policy, QuotaStatus},
    };

    const WAIT: Duration = Duration::from_secs(3);

    /// The same at any time.
    fn subject(name: &str) -> SubjectName {
        static SUBJECTS: LazyLock<SubjectNames> = LazyLock::new(|| SubjectNames::new(None));
        SUBJECTS.named(name)
    }

    fn denied(wait: Option<Duration>) -> Decision {
        let policy = Policy::new("test", 10);
        let status = QuotaStatus::new(&policy).with_remaining(2);
        Decision::denied(Timestamp::from_secs(1), status.with_denial(wait))
    }

    /// Has `cache` learn that alice asked this and heard that.
    fn learn(cache: &DenyCache, op: &Op, at: Instant, decision: &Decision) {
        let asked = AnsweredCall {
            subject: &subject("alice"),
            tier: Chosen::Tier(0),
            at,
            generation: 0,
        };
        cache.learn(&asked, op, decision);
    }

    fn ask(cache: &DenyCache, op: &Op, at: Instant) -> Option<Duration> {
        let answer = cache.answer(&subject("alice"), Chosen::Tier(0), op, at)?;
        assert!(answer.is_denied());
        answer.retry_after()
    }

    #[test]
    fn a_denial_holds_until_its_time_and_no_longer() {
        let cache = DenyCache::new();
        let start = Instant::now();
        learn(&cache, &Op::Acquire(3), start, &denied(Some(WAIT)));

        assert_eq!(ask(&cache, &Op::Acquire(3), start), Some(WAIT));
        let second = Duration::from_secs(1);
        assert_eq!(
            ask(&cache, &Op::Acquire(3), start + second),
            Some(WAIT - second)
        );
        let last = WAIT - Duration::from_nanos(1);
        let shortest = Duration::from_micros(1);
        assert_eq!(ask(&cache, &Op::Acquire(3), start + last), Some(shortest));
        assert_eq!(ask(&cache, &Op::Acquire(3), start + WAIT), None);
    }

    #[test]
    fn it_answers_nothing_but_the_same_cost() {
        let cache = DenyCache::new();
        let now = Instant::now();
        learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));

        for op in [
            Op::Acquire(2),
            Op::Acquire(4),
            Op::Reserve(3),
            Op::Deny(3),
            Op::Block(WAIT),
            Op::AcquireUpTo(3),
            Op::Peek(3),
            Op::Hit(3),
            Op::Refund(3, None),
            Op::Reset,
        ] {
            assert_eq!(ask(&cache, &op, now), None, "{op:?}");
        }
        let of = |name, tier| cache.answer(&subject(name), tier, &Op::Acquire(3), now);
        assert!(of("bob", Chosen::Tier(0)).is_none());
        assert!(of("alice", Chosen::Tier(1)).is_none());
    }

    #[test]
    fn refused_reservation_answers_reservations_alone() {
        let cache = DenyCache::new();
        let now = Instant::now();
        learn(&cache, &Op::Reserve(3), now, &denied(Some(WAIT)));

        assert_eq!(ask(&cache, &Op::Reserve(3), now), Some(WAIT));
        for op in [Op::Acquire(3), Op::Deny(3), Op::Peek(3), Op::Reserve(2)] {
            assert_eq!(ask(&cache, &op, now), None, "{op:?}");
        }
    }

    #[test]
    fn block_that_starts_ends_what_knows_of_none() {
        let cache = DenyCache::new();
        let now = Instant::now();
        let blocked = denied(Some(WAIT)).into_blocked(5 * WAIT);
        for starts in [Op::Deny(3), Op::Acquire(3), Op::Peek(1)] {
            learn(&cache, &Op::Reserve(3), now, &denied(Some(WAIT)));
            learn(&cache, &starts, now, &blocked);
            assert_eq!(ask(&cache, &Op::Reserve(3), now), None);
        }
        assert_eq!(ask(&cache, &Op::Acquire(3), now), Some(5 * WAIT));
        learn(&cache, &Op::Reserve(3), now, &blocked);
        assert_eq!(ask(&cache, &Op::Acquire(3), now), Some(5 * WAIT));
        assert_eq!(ask(&cache, &Op::Reserve(3), now), Some(5 * WAIT));
    }

    #[test]
    fn only_denials_with_a_known_end_are_kept() {
        let cache = DenyCache::new();
        let now = Instant::now();
        learn(&cache, &Op::Acquire(3), now, &denied(None));
        learn(&cache, &Op::Peek(3), now, &denied(Some(WAIT)));
        let policy = Policy::new("test", 10);
        let status = QuotaStatus::new(&policy);
        let allowed = Decision::allowed(1, Timestamp::from_secs(1), status);
        learn(&cache, &Op::Acquire(1), now, &allowed);
        assert_eq!(ask(&cache, &Op::Acquire(99), now), None);
    }

    #[test]
    fn a_newer_denial_replaces_the_older_and_forgetting_removes_it() {
        let cache = DenyCache::new();
        let now = Instant::now();
        learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
        learn(&cache, &Op::Acquire(3), now, &denied(Some(2 * WAIT)));
        assert_eq!(ask(&cache, &Op::Acquire(3), now), Some(2 * WAIT));
        cache.forget(&subject("alice"));
        assert_eq!(ask(&cache, &Op::Acquire(3), now), None);
    }

    #[test]
    fn what_is_given_back_and_new_quotas_end_it() {
        let cache = DenyCache::new();
        let now = Instant::now();
        for op in [
            Op::Refund(1, None),
            Op::Settle(0, denied(None).receipt()),
            Op::Block(Duration::ZERO),
            Op::Reset,
        ] {
            learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
            learn(&cache, &op, now, &denied(None));
            assert_eq!(ask(&cache, &Op::Acquire(3), now), None, "{op:?}");
        }
        learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
        cache.begin(1);
        assert_eq!(ask(&cache, &Op::Acquire(3), now), None);
        // The answer to a question from before.
        learn(&cache, &Op::Acquire(3), now, &denied(Some(WAIT)));
        assert_eq!(ask(&cache, &Op::Acquire(3), now), None);
    }

    #[test]
    fn it_is_bounded() {
        let cache = DenyCache::new();
        let now = Instant::now();
        for n in 0..200_000 {
            let subject = subject(&n.to_string());
            let asked = AnsweredCall {
                subject: &subject,
                tier: Chosen::Tier(0),
                at: now,
                generation: 0,
            };
            cache.learn(&asked, &Op::Acquire(1), &denied(Some(WAIT)));
        }
        let buckets = cache.buckets.iter();
        let kept: usize = buckets
            .map(|bucket| bucket.lock().expect("no panic").iter().flatten().count())
            .sum();
        assert_eq!(kept, BUCKETS * WAYS);
    }
}
