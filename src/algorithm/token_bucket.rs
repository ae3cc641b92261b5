use super::Step;
use crate::{decision::Measure, op::Op, quota::Quota};

/// A thread that is held up between reading the clock and writing sees a TAT that is ahead of its
/// time by as long as that took. Up to a second of this is no sign that the clock stepped back.
const MAX_STALE_NANOS: u64 = 1_000_000_000;

/// The token bucket as GCRA, the generic cell rate algorithm of ITU-T I.371.
///
/// The state is one number, the theoretical arrival time (TAT): the instant at which the bucket is
/// full again. A bucket that is `used` nanoseconds away from it lacks `used / interval` tokens. A
/// TAT that has passed is a full bucket, so 0 is the state of a key that was never seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    /// T: the time in which one token comes.
    interval: u64,
    burst: u64,
    /// burst · T: the time in which an empty bucket fills.
    refill: u64,
}

impl TokenBucket {
    /// The bucket of a quota that was checked, which keeps every product here within 2^59.
    pub(crate) fn new(quota: &Quota) -> Self {
        let interval = quota.interval_nanos();
        Self {
            interval,
            burst: quota.capacity(),
            refill: interval.saturating_mul(quota.capacity()),
        }
    }

    /// Does `op` at `now` to a bucket whose TAT is `tat`.
    #[inline]
    pub(crate) fn apply(&self, tat: u64, now: u64, op: Op) -> Step<u64> {
        // A TAT beyond a full refill comes from a clock that stepped back or from a larger quota;
        // honouring it would lock the key out for longer than this quota can.
        let ahead = tat.saturating_sub(now);
        let used = ahead.min(self.refill);
        let mut step = self.step(used, now, op);
        let stepped_back = ahead > self.refill + self.refill.max(MAX_STALE_NANOS);
        if step.measure.denied && stepped_back && !matches!(op, Op::Peek(_)) {
            // Denials write nothing else. But unless this one keeps what it made of the TAT, the
            // next one starts over, and the key stays locked until the clock has caught up.
            step.next = Some(now.saturating_add(used));
        }
        step
    }

    fn step(&self, used: u64, now: u64, op: Op) -> Step<u64> {
        match op {
            Op::Acquire(cost) => self.acquire(used, now, cost),
            Op::AcquireUpTo(most) => {
                let available = (self.refill - used) / self.interval;
                self.acquire(used, now, most.min(available.max(1)))
            }
            Op::Peek(cost) => self.unchanged(used, self.verdict(used, cost)),
            Op::Hit(cost) => self.hit(used, now, cost),
            Op::Refund(cost, _) => {
                let left = used.saturating_sub(cost.saturating_mul(self.interval));
                self.settle(used, now, left, 0, Verdict::Fits)
            }
            Op::Reset => self.settle(used, now, 0, 0, Verdict::Fits),
        }
    }

    fn acquire(&self, used: u64, now: u64, cost: u64) -> Step<u64> {
        match self.verdict(used, cost) {
            Verdict::Fits => {
                let needed = used + cost * self.interval;
                self.settle(used, now, needed, cost, Verdict::Fits)
            }
            verdict => self.unchanged(used, verdict),
        }
    }

    fn hit(&self, used: u64, now: u64, cost: u64) -> Step<u64> {
        let verdict = self.verdict(used, cost);
        let available = (self.refill - used) / self.interval;
        let charge = cost.saturating_mul(self.interval);
        let exhausted = used.saturating_add(charge).min(self.refill);
        self.settle(used, now, exhausted, cost.min(available), verdict)
    }

    fn unchanged(&self, used: u64, verdict: Verdict) -> Step<u64> {
        Step {
            next: None,
            charged: 0,
            measure: self.measure(used, verdict),
        }
    }

    /// Moves the bucket from `used` to `now_used`; a bucket that stays as it was is not written.
    fn settle(
        &self,
        used: u64,
        now: u64,
        now_used: u64,
        charged: u64,
        verdict: Verdict,
    ) -> Step<u64> {
        Step {
            next: (now_used != used).then(|| now.saturating_add(now_used)),
            charged,
            measure: self.measure(now_used, verdict),
        }
    }

    fn verdict(&self, used: u64, cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::Fits;
        }
        if cost > self.burst {
            return Verdict::Never;
        }
        let needed = used + cost * self.interval;
        match needed.checked_sub(self.refill) {
            None | Some(0) => Verdict::Fits,
            Some(wait) => Verdict::After(wait),
        }
    }

    fn measure(&self, used: u64, verdict: Verdict) -> Measure {
        let remaining = (self.refill - used) / self.interval;
        // Within `remaining` intervals a client gets no more than what remains; with nothing left
        // it gets nothing until the next token is there.
        let effective_window = if remaining > 0 {
            remaining * self.interval
        } else {
            used + self.interval - self.refill
        };
        Measure {
            denied: !matches!(verdict, Verdict::Fits),
            remaining,
            reset_after: used,
            effective_window,
            retry_after: match verdict {
                Verdict::After(wait) => Some(wait),
                Verdict::Fits | Verdict::Never => None,
            },
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Fits,
    After(u64),
    Never,
}
