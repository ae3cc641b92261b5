//! The status of one quota as a decision stores it: without a name that is owned.

use std::{num::NonZeroU64, time::Duration};

use super::{
    Policy, Unit,
    policy::Terms,
    receipt::Charge,
    rounding::{Micros, whole_seconds},
    usage::{Counted, Units, Usage},
};
use crate::quota::{Fitted, Kind, Priority};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// The policy's name, if it is static. The decision stores the owned names.
    pub(super) name: &'static str,
    pub(super) terms: Terms,
    standing: Usage,
    retry_after: Option<Micros>,
    /// The kind of the counter; `NONE` for a quota of a user's limiter.
    kind: Kind,
    denied: bool,
    excess: bool,
    /// Whether a block denies. Then no units are left, whatever the counter holds.
    blocked: bool,
    /// The class of the request. Numbers that are read are its class's already.
    class: Priority,
}

/// An algorithm's result for one quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) kind: Kind,
    pub(crate) denied: bool,
    /// Nanoseconds until a denied cost fits; `None` if it was allowed or can never fit.
    pub(crate) retry_after: Option<u64>,
    pub(crate) standing: Usage,
    /// Whether the usage exceeds the nominal limit.
    pub(crate) excess: bool,
}

impl Status {
    pub(super) const fn new(policy: &Policy) -> Self {
        Self {
            name: policy.name.fixed,
            terms: policy.terms,
            standing: Usage::UNKNOWN,
            retry_after: None,
            kind: Kind::NONE,
            denied: false,
            excess: false,
            blocked: false,
            class: Priority::CRITICAL,
        }
    }

    /// The status of an algorithm's result.
    #[inline]
    pub(super) const fn measured(policy: &Policy, measure: &Measure) -> Self {
        Self {
            name: policy.name.fixed,
            terms: policy.terms,
            standing: measure.standing,
            retry_after: match measure.retry_after {
                Some(wait) => Some(Micros::from_nanos(wait)),
                None => None,
            },
            kind: measure.kind,
            denied: measure.denied,
            excess: measure.excess,
            blocked: false,
            class: Priority::CRITICAL,
        }
    }

    #[cfg(feature = "shared")]
    pub(crate) const fn usage(&self) -> Usage {
        self.standing
    }

    #[cfg(feature = "shared")]
    pub(super) const fn remeasure(&mut self, measure: &Measure) {
        (self.standing, self.excess) = (measure.standing, measure.excess);
    }

    /// The most units that requests of the class may use.
    fn most(&self) -> u64 {
        self.class.part_of(self.limit())
    }

    pub(crate) const fn set_class(&mut self, class: Priority) {
        self.class = class;
    }

    pub(super) fn numbers(&self) -> Counted {
        let numbers = self.standing.numbers(&self.terms);
        if self.blocked {
            return Counted {
                remaining: Some(Units::new(0)),
                ..numbers
            };
        }
        numbers
    }

    pub(super) const fn with_numbers(mut self, numbers: Counted) -> Self {
        self.standing = Usage::Counted(numbers, 0);
        self
    }

    pub(super) const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.denied = true;
        self.retry_after = match retry_after {
            Some(wait) if wait.is_zero() => Some(Micros::new(1)),
            Some(wait) => Some(Micros::from_duration(wait)),
            None => None,
        };
        self
    }

    pub(super) const fn limit(&self) -> u64 {
        self.standing.limit(&self.terms)
    }

    pub(super) const fn terms_in_force(&self) -> Terms {
        self.terms.with_limit(self.limit())
    }

    pub(crate) const fn unit(&self) -> Unit {
        self.terms.unit()
    }

    pub(crate) fn remaining(&self) -> Option<u64> {
        if self.blocked {
            return Some(0);
        }
        self.standing.remaining(&self.terms)
    }

    /// The units in use, also while a block denies.
    pub(super) fn used(&self) -> Option<u64> {
        self.standing.used(&self.terms, self.most())
    }

    pub(super) const fn retry_after(&self) -> Option<Duration> {
        duration(self.retry_after)
    }

    pub(crate) fn effective_window(&self) -> Option<Duration> {
        match self.retry_after() {
            Some(wait) if self.denied => Some(wait),
            _ => duration(self.numbers().effective_window),
        }
    }

    /// The remaining units, and the effective window in whole seconds, rounded up.
    #[inline]
    pub(crate) fn remaining_and_seconds(&self) -> (Option<u64>, Option<u64>) {
        if !self.denied && !self.blocked {
            // The usual case, without the divisions for numbers that are not read.
            return self.standing.remaining_and_seconds(&self.terms);
        }
        let window = self.effective_window();
        (self.remaining(), window.map(whole_seconds))
    }

    pub(super) const fn is_denied(&self) -> bool {
        self.denied
    }

    /// Whether a block denies, whatever the counter holds.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) const fn is_excess(&self) -> bool {
        self.excess
    }

    /// Whether both report equal numbers; names are ignored.
    pub(super) fn reports_like(&self, other: &Self) -> bool {
        let reported = |status: &Self| {
            let Self {
                retry_after,
                denied,
                excess,
                ..
            } = *status;
            let counts = (status.numbers(), status.used());
            (status.terms_in_force(), counts, retry_after, denied, excess)
        };
        reported(self) == reported(other)
    }

    /// Whether this status binds more than another one; `left` returns the units left of both.
    fn binds_more_than(&self, other: &Self, left: impl FnOnce() -> [u64; 2]) -> bool {
        if self.denied != other.denied {
            return self.denied;
        }
        if self.denied {
            // No wait, because the cost never fits, is longer than any wait.
            return match (self.retry_after, other.retry_after) {
                (own, Some(other)) => own.is_none_or(|own| own > other),
                (_, None) => false,
            };
        }
        let [own, others] = left().map(u128::from);
        own * u128::from(other.limit()) < others * u128::from(self.limit())
    }

    /// The index of the binding status. `remaining` returns the units left of the status at an index, so
    /// that a caller that has divided them out need not do it again.
    pub(super) fn binding_of(statuses: &[Self], remaining: impl Fn(usize) -> Option<u64>) -> usize {
        let left = |place: usize| remaining(place).unwrap_or(statuses[place].limit());
        let mut binding = 0;
        for (place, status) in statuses.iter().enumerate().skip(1) {
            let both = || [place, binding].map(left);
            if status.binds_more_than(&statuses[binding], both) {
                binding = place;
            }
        }
        binding
    }

    pub(super) fn lengthen(&mut self, jitter: Duration) {
        if let Some(wait) = self.retry_after.as_mut().filter(|_| self.denied) {
            *wait = wait.saturating_add(Micros::from_duration(jitter));
        }
    }

    /// Shortens all times by `elapsed`. The wait of a denial stays at least a microsecond.
    pub(super) fn age(&mut self, elapsed: Duration) {
        // Rounded down to whole microseconds, so that no wait becomes too short.
        let passed = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.standing = self.standing.aged(passed);
        self.retry_after = self.retry_after.map(|wait| wait.less(passed, 1));
    }

    /// The numbers of the request's own quota, if this is its status.
    pub(super) fn fitted(&self) -> Fitted {
        let interval = self.terms.window_nanos() / self.terms.limit.max(1);
        Fitted {
            capacity: self.terms.limit,
            interval: NonZeroU64::new(interval).unwrap_or(NonZeroU64::MIN),
        }
    }

    /// The charge that left the quota with this status at `now`, in nanoseconds.
    pub(super) fn charge(&self, now: u64) -> Charge {
        let (end, interval) = self.standing.end(&self.terms, now).unwrap_or_default();
        Charge {
            kind: self.kind,
            end,
            interval,
        }
    }

    /// The charge of units that were spent from a lease. A bucket was charged earlier, by the lease.
    pub(super) const fn leased_charge(&self) -> Charge {
        Charge {
            kind: match self.standing {
                Usage::Window(_) | Usage::Counted(..) => self.kind,
                Usage::Level(_) | Usage::Stepped(..) => Kind::NONE,
            },
            end: 0,
            interval: 0,
        }
    }

    /// The least time from this decision until `behind` units have passed after its own `head` units,
    /// if no other request comes.
    pub(crate) fn wait_behind(&self, head: u64, behind: u64) -> Duration {
        if self.denied {
            let first = self.retry_after().unwrap_or_default();
            return first.saturating_add(self.standing.time_of(
                &self.terms,
                self.most(),
                (head, behind),
            ));
        }
        // Only the limiter knows how many more units a soft quota allows.
        if self.terms.is_soft() {
            return Duration::ZERO;
        }
        self.standing.time_until(head.saturating_add(behind))
    }

    pub(super) fn deny_for(&mut self, wait: Duration) {
        let wait = Micros::from_duration(wait).max(Micros::new(1));
        self.retry_after = match self.retry_after {
            // A request that never passes has no wait.
            None if self.denied => None,
            own => Some(own.map_or(wait, |own| own.max(wait))),
        };
        self.denied = true;
    }

    pub(super) fn pardon(&mut self) {
        self.denied = false;
        self.retry_after = None;
    }

    /// Denies for at least `block`, with no units left, whatever the counter holds.
    pub(crate) fn block(&mut self, block: Duration) {
        let block = Micros::from_duration(block);
        self.blocked = true;
        self.retry_after = match self.retry_after {
            // A cost that can never fit does not fit after the block either.
            None if self.denied => None,
            own => Some(own.map_or(block, |own| own.max(block))),
        };
        self.denied = true;
    }
}

pub(super) const fn duration(micros: Option<Micros>) -> Option<Duration> {
    match micros {
        Some(micros) => Some(micros.duration()),
        None => None,
    }
}
