//! The lock-free table of lone buckets: an instant for each key.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    eviction::Capacity,
    table::{MAX_STATE, Table},
};
use crate::hash::KeyHash;
use crate::{
    algorithm::{Bucket, Counters, Meter, State, TokenBucket, Verdict, View},
    clock::{ClockReading, Timestamp},
    decision::{Decision, Policy},
    error::ConfigError,
    limiter::{
        call::{Charged, OpRef, decision_about},
        limits_in_force::{ChangingLimits, SingleBucket},
    },
    quota::{MAX_REFILL_NANOS, Priority},
};

/// The time of a table's instant 0, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin(u64);

impl Origin {
    /// The furthest that a clock may be from it: a full bucket later, an instant still fits into an entry.
    const FURTHEST: u64 = MAX_STATE - MAX_REFILL_NANOS;

    const fn for_clock_at(now: u64) -> Self {
        // Leaves room for a clock that steps back.
        Self(now.saturating_sub(MAX_REFILL_NANOS))
    }

    fn state_of(self, nanos: u64) -> u64 {
        nanos.saturating_sub(self.0).min(MAX_STATE)
    }

    /// Converts a table's instant to nanoseconds. 0, the fresh state, stays 0 however far the clock
    /// stepped back.
    fn nanos_of(self, state: u64) -> u64 {
        if state == 0 {
            return 0;
        }
        self.0.saturating_add(state)
    }
}

/// The bucket of a limiter whose whole state of a key is one instant, and the table of these instants, updated without
/// locks.
#[derive(Debug)]
pub(super) struct LoneLimit {
    pub(super) bucket: ChangingLimits<SingleBucket>,
    table: Table,
    origin: AtomicU64,
}

impl LoneLimit {
    pub(super) fn try_new(
        bucket: SingleBucket,
        capacity: Capacity,
        now: Timestamp,
    ) -> Result<Self, ConfigError> {
        let table = Table::try_new(capacity.keys);
        Ok(Self {
            bucket: ChangingLimits::new(bucket),
            table: table.ok_or_else(|| capacity.refused())?,
            origin: AtomicU64::new(Origin::for_clock_at(now.as_nanos()).0),
        })
    }

    /// The token bucket that the limiter was made with, if it is still in force.
    #[inline]
    pub(super) fn token_bucket(&self) -> Option<(&TokenBucket, &Policy)> {
        let (bucket, policy) = &self.bucket.first()?.measured;
        Some((bucket.even()?, policy))
    }

    /// Puts another bucket in force, whose counter is the former one if it is `kept`.
    pub(super) fn change(&self, bucket: SingleBucket, kept: bool, now: Timestamp) {
        self.bucket.replace(bucket);
        if kept {
            self.fit(now);
        } else {
            self.table.change_states(|_| 0);
        }
    }

    /// Takes `units` by a bucket, or by the part of it that a class of requests may use. `None` if the state
    /// of the key has to be clamped, or the units take nothing or never fit: nothing was taken, and
    /// [`decide_in`](Self::decide_in) answers.
    #[inline(always)]
    pub(super) fn charge<'a>(
        &self,
        key: KeyHash,
        at: Timestamp,
        (bucket, policy): (&'a TokenBucket, &'a Policy),
        class: Priority,
        units: u64,
    ) -> Option<Charged<'a>> {
        let (step, most) = bucket.step(class, units)?;
        let nanos = at.as_nanos();
        let now = nanos - self.origin(nanos).0;
        let (state, taken) = self.table.advance(key, now, step, most);
        let used = state - now;
        let wait = if taken { 0 } else { used + step - most };
        (taken || !bucket.is_beyond(used)).then_some(Charged {
            bucket,
            policy,
            class,
            used,
            wait,
            units,
            at,
            now: nanos,
        })
    }

    /// Applies any operation by any bucket, for a class of requests.
    pub(super) fn decide_in(
        &self,
        class: Priority,
        key: KeyHash,
        time: ClockReading,
        (bucket, policy): &(Bucket, Policy),
        op: OpRef<'_>,
    ) -> Decision {
        let (now, view) = (time.as_nanos(), View { class, held: None });
        let fresh_until = bucket.fresh_until(now);
        let meter = Meter::of_bucket(*bucket);
        let origin = self.origin(now);
        let fresh = origin.state_of(fresh_until);
        let (judgement, instant) = self.table.update(key, fresh, move |state| {
            let old = origin.nanos_of(state);
            let mut instant = State::Instant(old);
            let mut counters = Counters {
                meters: std::slice::from_ref(&meter),
                states: &mut instant,
                first: 0,
                time,
                class,
                held: &[],
            };
            let judgement = counters.decide(op, &mut [Verdict::FITS]);
            let new = *instant.as_instant();
            // A fresh key needs no entry.
            let stays = new == old || (state == 0 && new <= fresh_until);
            let next = (!stays).then(|| origin.state_of(new));
            (next, (judgement, instant))
        });
        let status = meter.explain(&instant, now, judgement.verdict, view);
        decision_about(policy, status, &judgement, time.now, class)
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.table.entry_count()
    }

    /// The table's origin, and the state of a fresh key.
    pub(super) fn fresh(&self, now: Timestamp) -> (Origin, u64) {
        let origin = self.origin(now.as_nanos());
        let fresh_until = self.bucket.read().measured.0.fresh_until(now.as_nanos());
        (origin, origin.state_of(fresh_until))
    }

    /// Visits the key of an entry, unless it is fresh or there is none: its tag and its instant.
    pub(super) fn visit(
        &self,
        entry: usize,
        (origin, fresh): (Origin, u64),
        mut visit: impl FnMut(u64, u64),
    ) {
        let visit = |tag, state| visit(tag, origin.nanos_of(state));
        self.table.visit(entry, fresh, visit);
    }

    /// Restores a key's instant, unless it is fresh.
    pub(super) fn restore(&self, key: KeyHash, now: Timestamp, instant: u64) {
        let (origin, fresh) = self.fresh(now);
        let state = origin.state_of(instant);
        if state > fresh {
            self.table.restore(key, fresh, state);
        }
    }

    /// Clamps all keys to the most that the bucket allows, since a larger quota may have been in force.
    pub(super) fn fit(&self, now: Timestamp) {
        let latest = self.bucket.read().measured.0.latest(now.as_nanos());
        let most = self.origin(now.as_nanos()).state_of(latest);
        self.table.change_states(|state| state.min(most));
    }

    /// The number of keys that are not fresh at `now`. Walks the whole table.
    pub(super) fn live_keys(&self, now: Timestamp) -> usize {
        self.table.live_keys(self.fresh(now).1)
    }

    pub(super) fn evictions(&self) -> u64 {
        self.table.evictions()
    }

    /// The origin of the instants, which has to suit the clock: an earlier instant than the origin would
    /// be a fresh key, and so would all that are too late for an entry.
    #[inline]
    fn origin(&self, now: u64) -> Origin {
        let origin = self.origin.load(Ordering::Relaxed);
        match now.checked_sub(origin) {
            Some(since) if since <= Origin::FURTHEST => Origin(origin),
            _ => self.move_origin(Origin(origin), now),
        }
    }

    /// Moves the origin and all instants, after a step of the clock by decades. A thread that decides
    /// meanwhile may read an instant of the other origin: it is then clamped, or the key is fresh, as
    /// after a step back and forth.
    #[cold]
    #[inline(never)]
    fn move_origin(&self, old: Origin, now: u64) -> Origin {
        let new = Origin::for_clock_at(now);
        let moved =
            (self.origin).compare_exchange(old.0, new.0, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            let instant_moved = |state| new.state_of(old.nanos_of(state));
            self.table.change_states(instant_moved);
        }
        new
    }
}
