//! The quotas whose whole state of a key is one instant: the token bucket, as GCRA, and `Bucket`, which may also refill in
//! steps, or be a queue.

use super::{Most, Refund, RefundOf, Verdict};
use crate::quota::MAX_REFILL_NANOS;
use crate::{
    decision::{Charge, Status, until_step},
    quota::{Algorithm, Kind, Priority, Quota},
};

/// The token bucket as GCRA, the generic cell rate algorithm of ITU-T I.371.
///
/// The state is one number, the theoretical arrival time (TAT): the instant at which the bucket is
/// full again. A bucket `used` nanoseconds before its TAT lacks `used / interval` tokens. A TAT in the
/// past is a full bucket, so 0 is the fresh state.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    /// T: nanoseconds in which one token refills.
    interval: u64,
    capacity: u64,
    /// capacity · T: nanoseconds in which an empty bucket fills.
    refill: u64,
    /// The most nanoseconds of a bucket that owes units: those of the capacity and of the debt.
    owing: u64,
    /// `refill` of the nominal limit, without the soft share.
    nominal: u64,
    /// The most nanoseconds from now to a TAT: the refill of the largest bucket that shares it.
    most: u64,
    /// How far beyond `most` a TAT is still accepted, in nanoseconds.
    tolerance: u64,
    kind: Kind,
}

/// A token bucket whose tokens may refill in another way than evenly.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    tokens: TokenBucket,
    flow: Flow,
}

#[derive(Debug, Clone, Copy)]
enum Flow {
    Even,
    /// Tokens refill at multiples of these nanoseconds since the epoch. Between two steps it is a bucket at the time of the
    /// last step; only waits are different: they end at a step.
    Steps(u64),
    /// Tokens are slots of a queue: one unit leaves every interval, in order of arrival. The TAT is the next free slot, and
    /// a unit that fits waits for those before it.
    Queue,
}

impl TokenBucket {
    /// The bounds of valid quotas keep all products within 2^59.
    fn new(quota: &Quota, most: Most) -> Self {
        let interval = quota.interval_nanos();
        let capacity = quota.capacity() + quota.extra();
        let refill = interval * capacity;
        let debt = if quota.can_spend() {
            quota.debt_units()
        } else {
            0
        };
        Self {
            interval,
            capacity,
            refill,
            // The numbers of a request's own quota may be slower than the debt of the limiter's quota.
            owing: (interval.saturating_mul(debt).saturating_add(refill))
                .min(most.nanos)
                .max(refill),
            nominal: interval * quota.capacity(),
            most: most.nanos,
            tolerance: 0,
            kind: quota.kind(),
        }
    }

    /// The nanoseconds by which `cost` moves a TAT, and the most that it may then be after now for requests
    /// of this class, if the cost takes anything and can fit.
    #[inline]
    pub(crate) fn step(&self, class: Priority, cost: u64) -> Option<(u64, u64)> {
        let (capacity, refill) = if class.is_critical() {
            (self.capacity, self.refill)
        } else {
            let part = self.part(class);
            (part.capacity, part.refill)
        };
        // 0 wraps to more than any capacity.
        (cost.wrapping_sub(1) < capacity).then(|| (cost * self.interval, refill))
    }

    /// Whether a bucket that is full after `used` nanoseconds has to be [clamped](Self::clamp).
    #[inline]
    pub(crate) const fn is_beyond(&self, used: u64) -> bool {
        used > self.most + self.tolerance
    }

    /// The bucket with the capacity that a class below critical may use. Its state is the whole bucket's.
    pub(crate) fn part(&self, class: Priority) -> Self {
        let capacity = class.part_of(self.nominal / self.interval);
        let refill = capacity * self.interval;
        Self {
            capacity,
            refill,
            nominal: refill,
            ..*self
        }
    }

    pub const fn used(&self, tat: u64, now: u64) -> u64 {
        tat.saturating_sub(now)
    }

    #[inline]
    pub fn verdict(&self, tat: u64, now: u64, cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::FITS;
        }
        if cost > self.capacity {
            return Verdict::Never;
        }
        let needed = self.used(tat, now) + cost * self.interval;
        match needed.checked_sub(self.refill) {
            None | Some(0) => Verdict::FITS,
            Some(wait) => Verdict::After(wait),
        }
    }

    fn available(&self, tat: u64, now: u64) -> u64 {
        self.refill.saturating_sub(self.used(tat, now)) / self.interval
    }

    /// Takes `cost`, down to an empty bucket and no further.
    #[inline]
    pub fn charge(&self, tat: &mut u64, now: u64, cost: u64) {
        let cost = cost.saturating_mul(self.interval);
        let used = self.used(*tat, now).saturating_add(cost).min(self.refill);
        if used == 0 {
            // A limit of 0 has no tokens.
            return;
        }
        // A thread that read the clock earlier than the last writer must not undo the writer's charge.
        *tat = now.saturating_add(used).max(*tat);
    }

    /// Never as of an instant before that of the state: the units of that time are charged already.
    #[inline]
    pub(super) fn charge_late(&self, tat: &mut u64, now: u64, late: u64, cost: u64) {
        let full_since = now.saturating_sub(late).max((*tat).min(now));
        self.charge(tat, full_since, cost);
    }

    /// Moves a TAT beyond a full refill back to it. Such a TAT comes from a clock that stepped back or
    /// from a larger quota, and would lock the key out for longer than any quota can.
    #[inline]
    pub fn clamp(&self, tat: &mut u64, now: u64) {
        if self.is_beyond(self.used(*tat, now)) {
            *tat = now.saturating_add(self.most);
        }
    }

    /// The TAT with `more` units in use at `now`, even beyond the capacity; with fewer if that is negative.
    #[inline]
    pub fn moved(&self, tat: u64, now: u64, more: i64) -> u64 {
        let nanos = more.unsigned_abs().saturating_mul(self.interval);
        if more <= 0 {
            return tat.saturating_sub(nanos);
        }
        now.max(tat).saturating_add(nanos.min(MAX_REFILL_NANOS))
    }

    #[inline(always)]
    pub fn status(&self, used: u64, now: u64) -> Status {
        let status = Status::bucket(now, used, self.nominal, self.interval);
        status.in_excess(self.nominal < self.refill && used > self.nominal)
    }
}

impl Bucket {
    /// The bucket of a valid quota; `None` for windows and logs.
    pub fn new(quota: &Quota, most: Most) -> Option<Self> {
        let flow = match (quota.algorithm(), quota.refill_every_nanos()) {
            (Algorithm::TokenBucket, None) => Flow::Even,
            (Algorithm::TokenBucket, Some(step)) => Flow::Steps(step),
            (Algorithm::LeakyBucket { .. }, _) => Flow::Queue,
            _ => return None,
        };
        Some(Self {
            tokens: TokenBucket::new(quota, most),
            flow,
        })
    }

    /// The bucket of a key that is not locked: a thread may see a state that others wrote later than it read the clock, by
    /// the time that passes in it between that and the update. A state up to a second, or one full quota, ahead is then no
    /// sign of a clock that stepped back: to correct it would return units that other threads took.
    pub(crate) fn of_threads(mut self) -> Self {
        self.tokens.tolerance = self.tokens.most.max(1_000_000_000);
        self
    }

    /// The bucket, if its tokens refill evenly.
    #[inline]
    pub(crate) const fn even(&self) -> Option<&TokenBucket> {
        match self.flow {
            Flow::Even => Some(&self.tokens),
            Flow::Steps(_) | Flow::Queue => None,
        }
    }

    pub(super) const fn is_queue(&self) -> bool {
        matches!(self.flow, Flow::Queue)
    }

    /// The latest state that is fresh at `now`.
    pub(crate) const fn fresh_until(&self, now: u64) -> u64 {
        match self.flow {
            Flow::Steps(step) => now - now % step,
            Flow::Even | Flow::Queue => now,
        }
    }

    /// The latest possible state at `now`: that of an exhausted key.
    pub(crate) const fn latest(&self, now: u64) -> u64 {
        self.fresh_until(now).saturating_add(self.tokens.most)
    }

    /// Nanoseconds of refill between the state and a fresh one.
    pub const fn used(&self, tat: u64, now: u64) -> u64 {
        tat.saturating_sub(self.fresh_until(now))
    }

    /// Nanoseconds until the state is fresh.
    pub const fn reset_after(&self, tat: u64, now: u64) -> u64 {
        self.wait(now, self.used(tat, now))
    }

    /// Nanoseconds from now to the end of a wait that began at the last step.
    const fn wait(&self, now: u64, wait: u64) -> u64 {
        match self.flow {
            Flow::Steps(step) => until_step(wait, step, now % step),
            Flow::Even | Flow::Queue => wait,
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        self.tokens.kind
    }

    pub(super) const fn interval(&self) -> u64 {
        self.tokens.interval
    }

    pub(super) fn part(&self, class: Priority) -> Self {
        Self {
            tokens: self.tokens.part(class),
            ..*self
        }
    }

    /// The bucket that may also hold its debt, for units that were used already.
    pub(super) const fn with_debt(&self) -> Self {
        let mut bucket = *self;
        bucket.tokens.refill = self.tokens.owing;
        bucket
    }

    pub fn verdict(&self, tat: u64, now: u64, cost: u64) -> Verdict {
        match self.tokens.verdict(tat, self.fresh_until(now), cost) {
            Verdict::After(wait) => Verdict::After(self.wait(now, wait)),
            // The last of several units waits for all units before it.
            Verdict::Fits { .. } if self.is_queue() && cost > 0 => Verdict::Fits {
                wait: self.used(tat, now) + (cost - 1) * self.tokens.interval,
            },
            verdict => verdict,
        }
    }

    pub fn available(&self, tat: u64, now: u64) -> u64 {
        self.tokens.available(tat, self.fresh_until(now))
    }

    pub fn charge(&self, tat: &mut u64, now: u64, late: u64, cost: u64) {
        match self.flow {
            Flow::Even => self.tokens.charge_late(tat, now, late, cost),
            Flow::Steps(_) | Flow::Queue => self.tokens.charge(tat, self.fresh_until(now), cost),
        }
    }

    pub fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        let TokenBucket {
            interval, owing, ..
        } = self.tokens;
        charge.fits(self.fresh_until(charged_at), interval, owing)
    }

    /// The last slots of a queue become free: slots before others that are booked stay booked.
    pub(super) fn refund(&self, tat: &mut u64, now: u64, refund: Refund) {
        let of = match refund.of {
            RefundOf::At(_, charge) if self.is_queue() && charge.end != *tat => return,
            RefundOf::At(at, charge) => RefundOf::At(self.fresh_until(at), charge),
            RefundOf::Newest => RefundOf::Newest,
        };
        let TokenBucket {
            interval, capacity, ..
        } = self.tokens;
        let now = self.fresh_until(now);
        let back = Refund { of, ..refund }.nanos(now, interval, capacity);
        // A full bucket stays as it is.
        let less = tat.saturating_sub(back).max(now);
        *tat = less.min(*tat);
    }

    pub fn clamp(&self, tat: &mut u64, now: u64) {
        self.tokens.clamp(tat, self.fresh_until(now));
    }

    /// The slots of a queue become free evenly, like tokens.
    pub fn moved(&self, tat: u64, now: u64, more: i64) -> u64 {
        self.tokens.moved(tat, self.fresh_until(now), more)
    }

    pub fn status(&self, tat: u64, now: u64) -> Status {
        let status = (self.tokens).status(self.used(tat, now), self.fresh_until(now));
        match self.flow {
            Flow::Steps(step) => status.in_steps(step, now % step),
            Flow::Even | Flow::Queue => status,
        }
    }
}
