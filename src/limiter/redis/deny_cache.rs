use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{decision::Decision, limiter::Tier, op::Op};

/// Buckets of so many entries each.
const WAYS: usize = 4;

/// 16,384 entries, of about 300 bytes while they are used.
const BUCKETS: usize = 4_096;

/// Denials that hold until a known instant, so that a refused subject costs no round trip.
///
/// A denial says when the same cost passes if nothing else comes; until then it and every larger
/// cost are denied, whatever other nodes do, unless one of them gives something back. The wait is
/// counted from before the question was sent, so an entry never outlives what the server said.
#[derive(Debug)]
pub(super) struct DenyCache {
    random: RandomState,
    buckets: Box<[Mutex<Bucket>]>,
}

type Bucket = [Option<Box<Denial>>; WAYS];

#[derive(Debug)]
struct Denial {
    subject: String,
    tier: Tier,
    /// This cost was refused, and so is every larger one.
    cost: u64,
    asked_at: Instant,
    until: Instant,
    decision: Decision,
}

impl DenyCache {
    pub(super) fn new() -> Self {
        Self {
            random: RandomState::new(),
            buckets: (0..BUCKETS).map(|_| Mutex::default()).collect(),
        }
    }

    /// What is known to be the answer to `op` at `now`, with waits that have become shorter.
    pub(super) fn answer(
        &self,
        subject: &str,
        tier: Tier,
        op: Op,
        now: Instant,
    ) -> Option<Decision> {
        let Op::Acquire(cost) = op else {
            return None;
        };
        let bucket = self.bucket(subject);
        let denial = bucket.iter().flatten().find(|denial| {
            denial.subject == subject && denial.tier == tier && denial.cost <= cost
        })?;
        if now >= denial.until {
            return None;
        }
        let elapsed = now.saturating_duration_since(denial.asked_at);
        Some(denial.decision.clone().aged(elapsed))
    }

    /// Remembers the answer to `op`, which was asked at `asked_at`, if it is a denial that holds.
    pub(super) fn note(
        &self,
        subject: &str,
        tier: Tier,
        op: Op,
        asked_at: Instant,
        decision: &Decision,
    ) {
        if let Some(denial) = Denial::of(subject, tier, op, asked_at, decision) {
            let mut bucket = self.bucket(subject);
            // Its own entry, a free one, or the one that ends first.
            let place = bucket.iter_mut().min_by_key(|entry| {
                let entry = entry.as_deref();
                let own = entry.is_some_and(|known| known.is_about(&denial));
                (!own, entry.map(|known| known.until))
            });
            if let Some(place) = place {
                *place = Some(Box::new(denial));
            }
        }
    }

    /// Forgets all that is known of the subject.
    pub(super) fn forget(&self, subject: &str) {
        for entry in self.bucket(subject).iter_mut() {
            entry.take_if(|denial| denial.subject == subject);
        }
    }

    pub(super) fn clear(&self) {
        for bucket in &self.buckets {
            *lock(bucket) = Default::default();
        }
    }

    fn bucket(&self, subject: &str) -> MutexGuard<'_, Bucket> {
        let hash = self.random.hash_one(subject) as usize;
        lock(&self.buckets[hash % BUCKETS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Denial {
    fn of(
        subject: &str,
        tier: Tier,
        op: Op,
        asked_at: Instant,
        decision: &Decision,
    ) -> Option<Self> {
        let Op::Acquire(cost) = op else {
            return None;
        };
        let wait = decision.retry_after().filter(|_| decision.is_denied())?;
        Some(Self {
            subject: subject.to_owned(),
            tier,
            // A block keeps every cost out.
            cost: if decision.is_blocked() { 1 } else { cost },
            asked_at,
            until: asked_at.checked_add(wait)?,
            decision: decision.clone(),
        })
    }

    fn is_about(&self, other: &Self) -> bool {
        self.subject == other.subject && self.tier == other.tier
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::Timestamp,
        decision::{Policy, QuotaStatus, Receipt},
    };

    const WAIT: Duration = Duration::from_secs(3);

    fn denied(wait: Option<Duration>) -> Decision {
        let status = QuotaStatus::new(&Policy::new("test", 10)).with_remaining(2);
        let receipt = Receipt::new(Timestamp::from_secs(1));
        Decision::denied(receipt, status.with_denial(wait))
    }

    fn ask(cache: &DenyCache, op: Op, at: Instant) -> Option<Duration> {
        let answer = cache.answer("alice", Tier::DEFAULT, op, at)?;
        assert!(answer.is_denied());
        answer.retry_after()
    }

    #[test]
    fn a_denial_holds_until_its_time_and_no_longer() {
        let cache = DenyCache::new();
        let start = Instant::now();
        cache.note(
            "alice",
            Tier::DEFAULT,
            Op::Acquire(3),
            start,
            &denied(Some(WAIT)),
        );

        assert_eq!(ask(&cache, Op::Acquire(3), start), Some(WAIT));
        let second = Duration::from_secs(1);
        assert_eq!(
            ask(&cache, Op::Acquire(9), start + second),
            Some(WAIT - second)
        );
        let last = WAIT - Duration::from_nanos(1);
        let shortest = Duration::from_micros(1);
        assert_eq!(ask(&cache, Op::Acquire(3), start + last), Some(shortest));
        assert_eq!(ask(&cache, Op::Acquire(3), start + WAIT), None);
    }

    #[test]
    fn it_answers_nothing_but_the_same_and_larger_costs() {
        let cache = DenyCache::new();
        let now = Instant::now();
        cache.note(
            "alice",
            Tier::DEFAULT,
            Op::Acquire(3),
            now,
            &denied(Some(WAIT)),
        );

        for op in [
            Op::Acquire(2),
            Op::AcquireUpTo(3),
            Op::Peek(3),
            Op::Hit(3),
            Op::Refund(3, None),
            Op::Reset,
        ] {
            assert_eq!(ask(&cache, op, now), None, "{op:?}");
        }
        let of = |subject, tier| cache.answer(subject, tier, Op::Acquire(3), now);
        assert!(of("bob", Tier::DEFAULT).is_none());
        assert!(of("alice", Tier::named("gold")).is_none());
    }

    #[test]
    fn only_denials_with_a_known_end_are_kept() {
        let cache = DenyCache::new();
        let now = Instant::now();
        cache.note("alice", Tier::DEFAULT, Op::Acquire(3), now, &denied(None));
        cache.note(
            "alice",
            Tier::DEFAULT,
            Op::Peek(3),
            now,
            &denied(Some(WAIT)),
        );
        let status = QuotaStatus::new(&Policy::new("test", 10));
        let allowed = Decision::allowed(1, Receipt::new(Timestamp::from_secs(1)), status);
        cache.note("alice", Tier::DEFAULT, Op::Acquire(1), now, &allowed);
        assert_eq!(ask(&cache, Op::Acquire(99), now), None);
    }

    #[test]
    fn a_newer_denial_replaces_the_older_and_forgetting_removes_it() {
        let cache = DenyCache::new();
        let now = Instant::now();
        cache.note(
            "alice",
            Tier::DEFAULT,
            Op::Acquire(3),
            now,
            &denied(Some(WAIT)),
        );
        cache.note(
            "alice",
            Tier::DEFAULT,
            Op::Acquire(1),
            now,
            &denied(Some(2 * WAIT)),
        );
        assert_eq!(ask(&cache, Op::Acquire(3), now), Some(2 * WAIT));
        cache.forget("alice");
        assert_eq!(ask(&cache, Op::Acquire(3), now), None);
    }

    #[test]
    fn it_is_bounded() {
        let cache = DenyCache::new();
        let now = Instant::now();
        for n in 0..200_000 {
            let subject = n.to_string();
            cache.note(
                &subject,
                Tier::DEFAULT,
                Op::Acquire(1),
                now,
                &denied(Some(WAIT)),
            );
        }
        let buckets = cache.buckets.iter();
        let kept: usize = buckets
            .map(|bucket| lock(bucket).iter().flatten().count())
            .sum();
        assert_eq!(kept, BUCKETS * WAYS);
    }
}
