//! `Status`: what a quota has left, and when more comes, in plain numbers. `QuotaStatus`: the same with the quota's name.

use std::{fmt, num::NonZeroU64, time::Duration};

use super::{
    LONGEST, Policy, UNKNOWN, Unit, nanos_of, policy::Name, receipt::Charge, seconds_of, time_of,
    whole_micros,
};
use crate::quota::{Fitted, Kind, Priority};

/// The numbers of one quota after an operation, computed once from the state of a key. Times are nanoseconds from the
/// decision on, or [`UNKNOWN`].
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Status {
    /// The units left for the class of the request, or the units beyond them; may be [`UNKNOWN`].
    pub left: u64,
    pub reset_after: u64,
    /// The time within which a client gets no more than the units left.
    pub(crate) window: u64,
    /// Until a denied cost fits; unknown also if it never does.
    pub(crate) wait: u64,
    /// The instant at which a bucket is full.
    pub(crate) end: u64,
    /// The limit in force if it varies, otherwise 0.
    varied: u32,
    pub class: Priority,
    marks: Marks,
}

/// Facts about a status in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Marks(u8);

impl Marks {
    const NONE: Self = Self(0);
    pub(crate) const DENIED: Self = Self(1);
    /// The usage exceeds the nominal limit.
    pub(crate) const EXCESS: Self = Self(2);
    /// A block denies: no units are left, whatever the counter holds.
    #[doc(hidden)]
    pub const BLOCKED: Self = Self(4);
    /// The count is above the limit.
    const BEYOND: Self = Self(16);
    /// The quota is a bucket.
    const BUCKET: Self = Self(32);

    const fn with(self, mark: Self, set: bool) -> Self {
        if set {
            Self(self.0 | mark.0)
        } else {
            Self(self.0 & !mark.0)
        }
    }
}

#[doc(hidden)]
impl Status {
    pub const UNKNOWN: Self = Self::counted(UNKNOWN, UNKNOWN, UNKNOWN);

    /// The numbers of a window or log.
    #[inline]
    pub(crate) const fn counted(left: u64, reset_after: u64, window: u64) -> Self {
        Self {
            left,
            reset_after,
            window,
            wait: UNKNOWN,
            end: 0,
            varied: 0,
            class: Priority::CRITICAL,
            marks: Marks::NONE,
        }
    }

    /// A bucket that is full in `used` nanoseconds, and an empty one in `refill`.
    #[inline]
    pub(crate) const fn bucket(now: u64, used: u64, refill: u64, interval: u64) -> Self {
        let left = refill.saturating_sub(used) / interval;
        let window = match left {
            0 => used + interval - refill,
            left => left * interval,
        };
        Self {
            end: now.saturating_add(used),
            marks: Marks::BUCKET,
            ..Self::counted(left, used, window)
        }
    }

    /// A bucket that fills in steps, from its numbers at the last step.
    pub(crate) const fn in_steps(self, step: u64, since_last: u64) -> Self {
        Self {
            reset_after: until_step(self.reset_after, step, since_last),
            window: match self.left {
                0 => until_step(self.window, step, since_last),
                _ => self.window,
            },
            ..self
        }
    }

    /// A fixed window that has counted `count` units of `most`.
    #[inline]
    pub(crate) const fn window(count: u64, most: u64, until_end: u64) -> Self {
        let reset_after = if count == 0 { 0 } else { until_end };
        let mut status = Self::counted(most.abs_diff(count), reset_after, until_end);
        status.set(Marks::BEYOND, count > most);
        status
    }

    /// The numbers under a limit that varies.
    #[must_use]
    pub fn of_limit(self, limit: Option<u64>) -> Self {
        let varied = limit.map_or(0, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
        Self { varied, ..self }
    }

    #[inline]
    pub(crate) const fn in_excess(mut self, excess: bool) -> Self {
        self.set(Marks::EXCESS, excess);
        self
    }

    /// The numbers of a denied cost, which fits after `wait`.
    #[inline]
    pub(crate) const fn denied(mut self, wait: u64) -> Self {
        self.wait = wait;
        self.set(Marks::DENIED, true);
        self
    }

    /// Other numbers of the quota, with its denial, its block and the class of its request.
    pub(super) fn remeasured(self, numbers: Self) -> Self {
        let mut marks = numbers.marks;
        for mark in [Marks::DENIED, Marks::BLOCKED] {
            marks = marks.with(mark, self.is(mark));
        }
        let Self { wait, class, .. } = self;
        Self {
            wait,
            class,
            marks,
            ..numbers
        }
    }

    #[inline]
    pub(super) const fn set(&mut self, mark: Marks, set: bool) {
        self.marks = self.marks.with(mark, set);
    }

    #[inline]
    pub const fn is(&self, mark: Marks) -> bool {
        self.marks.0 & mark.0 != 0
    }

    /// A bucket of a decision that is full `used` nanoseconds after its last refill.
    pub(crate) fn of_bucket(policy: &Policy, class: Priority, now: u64, used: u64) -> Self {
        let (interval, last) = (policy.interval().max(1), policy.last_refill(now));
        let refill = class.part_of(policy.limit) * interval;
        let status = Self::bucket(last, used, refill, interval);
        let status = status.in_excess(policy.is_soft && class.is_critical() && used > refill);
        match policy.step {
            0 => status,
            step => status.in_steps(step, now - last),
        }
    }

    pub(crate) const fn is_bucket(&self) -> bool {
        self.is(Marks::BUCKET)
    }

    /// Shortens all times by `elapsed` since `at`. The wait of a denial stays above 0.
    pub(super) fn age(&mut self, policy: &Policy, at: u64, elapsed: Duration) {
        // Whole microseconds, rounded down, so that no wait becomes too short.
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let passed = micros.saturating_mul(1_000);
        let less = |time: u64, least| match time {
            LONGEST | UNKNOWN => time,
            time => time.saturating_sub(passed).max(least),
        };
        self.wait = less(self.wait, 1);
        if self.is_bucket() {
            let later = at.saturating_add(passed);
            let used = self.end.saturating_sub(policy.last_refill(later));
            *self = self.remeasured(Self::of_bucket(policy, self.class, later, used));
        } else {
            self.reset_after = less(self.reset_after, 0);
            self.window = less(self.window, 0);
        }
    }

    #[inline]
    pub const fn remaining(&self) -> Option<u64> {
        if self.is(Marks::BLOCKED) || self.is(Marks::BEYOND) {
            return Some(0);
        }
        match self.left {
            UNKNOWN => None,
            left => Some(left),
        }
    }

    pub(super) const fn retry_after(&self) -> Option<Duration> {
        time_of(self.wait)
    }

    /// Nanoseconds of the effective window.
    const fn in_effect(&self) -> u64 {
        if self.is(Marks::DENIED) && self.wait != UNKNOWN {
            return self.wait;
        }
        self.window
    }

    pub(crate) const fn effective_window(&self) -> Option<Duration> {
        time_of(self.in_effect())
    }

    /// The effective window in whole seconds, rounded up.
    #[inline]
    pub(crate) const fn seconds(&self) -> Option<u64> {
        seconds_of(self.in_effect())
    }

    #[inline]
    pub const fn limit(&self, policy: &Policy) -> u64 {
        match self.varied {
            0 => policy.limit,
            varied => varied as u64,
        }
    }

    /// Whether the quota of this policy binds more than another one.
    #[inline]
    pub(super) fn binds_more_than(&self, policy: &Policy, other: (&Policy, &Self)) -> bool {
        let (other_policy, other) = other;
        let is_denied = self.is(Marks::DENIED);
        if is_denied != other.is(Marks::DENIED) {
            return is_denied;
        }
        if is_denied {
            // No wait, because the cost never fits, is longer than any wait.
            return match (self.retry_after(), other.retry_after()) {
                (own, Some(other)) => own.is_none_or(|own| own > other),
                (_, None) => false,
            };
        }
        let (limit, others) = (self.limit(policy), other.limit(other_policy));
        let left = |status: &Self, limit| u128::from(status.remaining().unwrap_or(limit));
        left(self, limit) * u128::from(others) < left(other, others) * u128::from(limit)
    }

    /// The most units that requests of the class may use.
    pub const fn most(&self, policy: &Policy) -> u64 {
        self.class.part_of(self.limit(policy))
    }

    /// The units in use, also while a block denies.
    pub const fn used(&self, policy: &Policy) -> Option<u64> {
        let most = self.most(policy);
        match self.left {
            UNKNOWN => None,
            beyond if self.is(Marks::BEYOND) => Some(most.saturating_add(beyond)),
            left => Some(most.saturating_sub(left)),
        }
    }

    /// Nanoseconds until `units` fit into a bucket; 0 for all others. A step may end later.
    fn until_fit(&self, policy: &Policy, units: u64) -> u64 {
        if !self.is_bucket() {
            return 0;
        }
        let interval = policy.interval();
        let needed = self
            .reset_after
            .saturating_add(interval.saturating_mul(units));
        needed.saturating_sub(self.most(policy) * interval)
    }

    pub fn lengthen(&mut self, jitter: Duration) {
        if self.is(Marks::DENIED) && self.wait < LONGEST {
            let jitter = whole_micros(nanos_of(jitter));
            let wait = whole_micros(self.wait).saturating_add(jitter);
            self.wait = wait.min(LONGEST);
        }
    }

    pub(super) fn deny_for(&mut self, wait: Duration) {
        let wait = nanos_of(wait).max(1);
        // A request that never passes has no wait.
        if self.wait != UNKNOWN {
            self.wait = self.wait.max(wait);
        } else if !self.is(Marks::DENIED) {
            self.wait = wait;
        }
        self.set(Marks::DENIED, true);
    }

    /// The numbers for a request of this class, whose key is blocked for more than 0 nanoseconds or not at all.
    #[inline]
    #[must_use]
    pub fn of_request(mut self, class: Priority, blocked: u64) -> Self {
        self.class = class;
        if blocked > 0 {
            self.block(Duration::from_nanos(blocked));
        }
        self
    }

    /// Denies for at least `block`, with no units left, whatever the counter holds.
    pub(super) fn block(&mut self, block: Duration) {
        self.deny_for(block);
        self.set(Marks::BLOCKED, true);
    }

    pub(super) const fn pardon(&mut self) {
        self.set(Marks::DENIED, false);
        self.wait = UNKNOWN;
    }
}

/// Nanoseconds from now to the first step that is at least `wait` after the last one.
#[doc(hidden)]
pub const fn until_step(wait: u64, step: u64, since_last: u64) -> u64 {
    match wait {
        0 => 0,
        wait => wait.div_ceil(step).saturating_mul(step) - since_last,
    }
}

/// The status of one quota after a decision.
///
/// Durations are relative to the decision, in microseconds, rounded up. The policy is borrowed from the
/// decision, or the one that the status was made for.
#[derive(Clone, Copy)]
pub struct QuotaStatus<'a> {
    pub(crate) policy: &'a Policy,
    #[doc(hidden)]
    pub status: Status,
}

impl<'a> QuotaStatus<'a> {
    /// A status of the quota that `policy` describes: not denied, remaining units and times unknown.
    ///
    /// For a limiter of your own, which adds the numbers that it knows: responses contain only the fields
    /// that follow from these.
    pub const fn new(policy: &'a Policy) -> Self {
        Self {
            policy,
            status: Status::UNKNOWN,
        }
    }

    /// Sets the units left. Defaults to unknown: then responses have no `RateLimit` field.
    #[must_use]
    pub fn with_remaining(mut self, remaining: u64) -> Self {
        self.status.left = remaining.min(LONGEST);
        self
    }

    /// Sets the time until the key is as good as new, rounded up to microseconds. Defaults to unknown.
    #[must_use]
    pub fn with_reset_after(mut self, reset_after: Duration) -> Self {
        self.status.reset_after = nanos_of(reset_after);
        self
    }

    /// Sets the time within which a client can use no more than the units left: the `t` parameter of
    /// draft-11. Defaults to unknown: then the field has no `t`.
    #[must_use]
    pub fn with_effective_window(mut self, window: Duration) -> Self {
        self.status.window = nanos_of(window);
        self
    }

    /// Marks the quota as denying. The same cost passes after `retry_after`; `None` if it never does,
    /// or the wait is unknown. A wait of zero becomes a microsecond, so that a denied client never
    /// retries at once.
    #[must_use]
    pub const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.status = self.status.denied(match retry_after {
            Some(wait) if wait.is_zero() => 1_000,
            Some(wait) => nanos_of(wait),
            None => UNKNOWN,
        });
        self
    }

    /// The policy as it was in force for this decision.
    pub fn policy(&self) -> Policy {
        self.policy.with_limit(self.limit())
    }

    /// The policy's name.
    pub fn name(&self) -> &'a str {
        self.policy.name()
    }

    #[doc(hidden)]
    pub fn label(&self) -> Name {
        self.policy.label()
    }

    /// The most units that can be available at once.
    pub const fn limit(&self) -> u64 {
        self.status.limit(self.policy)
    }

    /// The time in which [`limit`](Self::limit) units become available again, see
    /// [`Policy::window`].
    pub const fn window(&self) -> Option<Duration> {
        self.policy.window()
    }

    /// The unit that is counted.
    pub const fn unit(&self) -> Unit {
        self.policy.unit()
    }

    /// Units left; `None` if the limiter does not report them.
    pub fn remaining(&self) -> Option<u64> {
        self.status.remaining()
    }

    /// Units in use; `None` if the limiter does not report them. For a fixed window it is the count,
    /// which exceeds the limit if the window is [uncapped](crate::Quota::uncapped); for other
    /// algorithms it is the limit less the units left.
    pub fn used(&self) -> Option<u64> {
        self.status.used(self.policy)
    }

    /// Time from the decision until the key is as good as new if nothing else comes on it: the bucket is
    /// full, or all counted units have left the window or log. `None` if the limiter does not report it.
    pub fn reset_after(&self) -> Option<Duration> {
        time_of(self.status.reset_after)
    }

    /// The wait after which a denied cost passes; `None` if the quota did not deny, the cost can never
    /// fit, or the wait is unknown.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.status.retry_after()
    }

    /// The time within which a client can use no more than the units left; for a denied quota its
    /// [`retry_after`](Self::retry_after).
    pub fn effective_window(&self) -> Option<Duration> {
        self.status.effective_window()
    }

    /// Whether this quota denied. Of several quotas that are charged together one is enough to deny the
    /// request.
    pub const fn is_denied(&self) -> bool {
        self.status.is(Marks::DENIED)
    }

    /// Whether the usage exceeds the nominal limit, as [`Quota::soft`](crate::Quota::soft) allows.
    pub const fn is_excess(&self) -> bool {
        self.status.is(Marks::EXCESS)
    }

    /// Whether at least 80 % of the limit is used, for warnings before the first denial. If the limiter does
    /// not report the units left: whether it denied.
    pub fn is_near_limit(&self) -> bool {
        match self.remaining() {
            Some(remaining) => remaining <= self.limit() / 5,
            None => self.is_denied(),
        }
    }
}

impl QuotaStatus<'_> {
    /// The numbers of the request's own quota, if this is its status.
    pub(super) fn fitted(&self) -> Fitted {
        Fitted {
            capacity: self.policy.limit,
            interval: NonZeroU64::new(self.policy.interval()).unwrap_or(NonZeroU64::MIN),
        }
    }

    /// The charge that left the quota with this status. A lease has charged a bucket earlier.
    #[doc(hidden)]
    pub fn charge(&self, is_leased: bool) -> Charge {
        let (kind, is_bucket) = (self.policy.kind, self.status.is_bucket());
        let none = |kind| Charge {
            kind,
            end: 0,
            interval: 0,
        };
        match (is_bucket, is_leased) {
            (false, _) => none(kind),
            (true, true) => none(Kind::NONE),
            (true, false) => Charge {
                kind,
                end: self.status.end,
                interval: self.policy.interval(),
            },
        }
    }

    /// The least time from this decision until `behind` units have passed after its own `head` units,
    /// if no other request comes. A bucket needs the refill time of the units; a window or log needs whole periods.
    #[doc(hidden)]
    pub fn wait_behind(&self, head: u64, behind: u64) -> Duration {
        let Self { policy, status } = self;
        if !self.is_denied() {
            // Only the limiter knows how many more units a soft quota allows, or when the next step is.
            if policy.is_soft || policy.step() > 0 {
                return Duration::ZERO;
            }
            return Duration::from_nanos(status.until_fit(policy, head.saturating_add(behind)));
        }
        let first = self.retry_after().unwrap_or_default();
        let refill = policy.interval().saturating_mul(behind);
        first.saturating_add(if status.is_bucket() {
            Duration::from_nanos(policy.last_refill(refill))
        } else if policy.limit_varies {
            // How much fits in the next period depends on the hour.
            Duration::ZERO
        } else {
            let last = head.saturating_add(behind).saturating_sub(1);
            let periods = last / status.most(policy).max(1);
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            policy.window().unwrap_or_default().saturating_mul(periods)
        })
    }
}

/// Two statuses are equal if they report the same name and numbers.
impl PartialEq for QuotaStatus<'_> {
    fn eq(&self, other: &Self) -> bool {
        let reported = |quota: &Self| {
            let Self { policy, status } = quota;
            let marks = (quota.is_denied(), quota.is_excess(), policy.is_soft);
            let units = (quota.limit(), quota.unit(), quota.remaining(), quota.used());
            let times = [
                quota.window(),
                quota.reset_after(),
                quota.retry_after(),
                time_of(status.window),
            ];
            (units, times, marks)
        };
        reported(self) == reported(other) && self.name() == other.name()
    }
}

impl Eq for QuotaStatus<'_> {}

impl fmt::Debug for QuotaStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaStatus")
            .field("policy", &self.policy())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("retry_after", &self.retry_after())
            .field("effective_window", &self.effective_window())
            .field("denied", &self.is_denied())
            .field("excess", &self.is_excess())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Key, LocalLimiter, Quota, clock::ManualClock};

    #[test]
    fn aged_denial_equals_a_later_one() {
        let soft = Quota::per_minute(6).burst(10).soft(20);
        for (quota, millis) in [
            (Quota::per_minute(6).burst(10), 7_250),
            (soft, 7_250),
            // No longer in excess.
            (soft, 25_000),
            (
                Quota::per_minute(6).refill_every(Duration::from_secs(20)),
                7_250,
            ),
            (Quota::per_minute(6).fixed_window(), 7_250),
        ] {
            let clock = ManualClock::new();
            let builder = LocalLimiter::builder(quota).clock(clock.clone());
            let limiter = builder.build().expect("a good quota");
            let key = Key::global();
            assert!(limiter.acquire_up_to(&key, 20).charged() > 0);
            let early = limiter.peek(&key, 4);
            let passed = Duration::from_millis(millis);
            clock.advance(passed);
            let aged = early.aged(passed);
            let late = limiter.peek(&key, 4);
            assert!(aged.quotas().eq(late.quotas()), "{quota:?}");
            let behind = |of: &crate::Decision| of.binding().wait_behind(4, 5);
            assert_eq!(behind(&aged), behind(&late), "{quota:?}");
        }
    }
}
