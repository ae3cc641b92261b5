//! Decisions of limiters, and the only place where durations become whole seconds.

#[allow(clippy::module_inception, reason = "files are named by their role")]
#[doc(hidden)]
pub mod decision;
mod joint;
pub(crate) mod operation;
mod policy;
mod quota_status;
mod receipt;

use std::{fmt, num::NonZeroU8, time::Duration};

#[doc(hidden)]
pub use self::{
    decision::Decision,
    joint::{JointDecision, receipts_of_each},
    operation::OpRef,
    policy::Name,
    quota_status::{Marks, Status, until_step},
    receipt::{Charge, LimitReceipt, REQUEST_TIER},
};
pub use self::{
    decision::QuotaStatuses,
    joint::DecisionPart,
    operation::Op,
    policy::{Policy, Unit},
    quota_status::QuotaStatus,
    receipt::Receipt,
};
use crate::clock::Timestamp;

/// Whether a request may pass, and after which wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request passes now; its units are charged.
    Allowed,
    /// The request passes after this wait, and its units are charged already. A caller of a limiter with a
    /// [leaky bucket](crate::quota::Algorithm::LeakyBucket) waits that long before it does the work; a layer has
    /// waited when a handler reads the decision.
    Delayed(Duration),
    /// The request does not pass, and nothing was charged, except by a [hit](crate::decision::Op::Hit), a
    /// [spend](crate::decision::Op::Spend) or a [count](crate::decision::Op::Count). [`Decision::retry_after`](crate::Decision::retry_after) is the wait after which it would pass.
    Denied,
}

/// The cause of a denial. One byte, since a decision has no room for two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DenialCause {
    /// The quotas, for any request of this cost.
    Quotas,
    Block,
    /// The quotas, and the request passes nevertheless: its layer adds the fields to each response.
    Overflow,
    /// The quotas, only for the class of the request.
    Class,
    /// The quotas for the class alone, and the request passes nevertheless.
    ClassOverflow,
}

/// The reason why the limiter's fallback decided instead of its store: see
/// [`Decision::degraded_by`](crate::Decision::degraded_by).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// Too many calls were in flight for a response within the deadline. Nothing was sent.
    Crowded,
    /// The store did not respond within the deadline. It may have counted the request as well.
    TimedOut,
    /// The store had failed before, so its circuit is open: the limiter did not call it.
    GivenUp,
    /// The store could not be reached, or responded with an error.
    Failed,
}

impl Degradation {
    /// All reasons, in the order of their discriminants.
    #[doc(hidden)]
    pub const ALL: [Self; 4] = [Self::Crowded, Self::TimedOut, Self::GivenUp, Self::Failed];

    /// A short name for metrics: `crowded`, `timed_out`, `given_up` or `failed`. It stays the same from
    /// version to version.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crowded => "crowded",
            Self::TimedOut => "timed_out",
            Self::GivenUp => "given_up",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The limiter that counted, and with it the clock of the decision's time. One byte, too.
#[derive(Debug, Clone, Copy, Eq)]
enum CountedBy {
    /// A limiter in this process, by its clock, which the wall may be ahead of.
    Process,
    /// A store, or a limiter of somebody else, by a wall clock.
    Other,
    /// None: only the policies are known, and the time is the wall's.
    Nobody,
}

impl CountedBy {
    const fn is_nobody(self) -> bool {
        matches!(self, Self::Nobody)
    }
}

/// Decisions with the same numbers are equal, whoever made them.
impl PartialEq for CountedBy {
    fn eq(&self, other: &Self) -> bool {
        self.is_nobody() == other.is_nobody()
    }
}

/// The outcome and the charge of a limit; the numbers of its quotas are beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Ruling {
    /// In nanoseconds; 0 for none.
    delay: u64,
    pub charged: u64,
    charged_at: Timestamp,
    /// The tier's index among the limiter's tiers.
    tier: u16,
    denied: bool,
    excess: bool,
    cause: DenialCause,
    degraded: Option<Degradation>,
    counted_by: CountedBy,
    pub lease: Option<NonZeroU8>,
}

#[doc(hidden)]
impl Ruling {
    /// The ruling of a store, or of a limiter of somebody else. A hit may be charged although it is denied.
    #[inline]
    pub const fn new(outcome: Outcome, charged: u64, charged_at: Timestamp) -> Self {
        Self {
            delay: match outcome {
                Outcome::Delayed(wait) => whole_micros(nanos_of(wait)),
                Outcome::Allowed | Outcome::Denied => 0,
            },
            charged,
            charged_at,
            tier: 0,
            denied: matches!(outcome, Outcome::Denied),
            excess: false,
            cause: DenialCause::Quotas,
            degraded: None,
            counted_by: CountedBy::Other,
            lease: None,
        }
    }

    /// The ruling of a limiter in this process, in one of its tiers.
    #[inline]
    pub(crate) const fn measured(
        outcome: Outcome,
        charged: u64,
        charged_at: Timestamp,
        tier: u16,
    ) -> Self {
        Self {
            tier,
            counted_by: CountedBy::Process,
            ..Self::new(outcome, charged, charged_at)
        }
    }

    /// Whether only the class of the request caused a denial.
    #[inline]
    pub(crate) const fn by_class(mut self, shed: bool) -> Self {
        self.cause = if shed {
            DenialCause::Class
        } else {
            DenialCause::Quotas
        };
        self
    }

    /// The ruling about a key that may be blocked.
    #[inline]
    pub(crate) const fn while_blocked(mut self, is_blocked: bool) -> Self {
        if is_blocked {
            self.denied = true;
            self.delay = 0;
            self.cause = DenialCause::Block;
        }
        self
    }

    pub const fn outcome(&self) -> Outcome {
        match time_of(self.delay) {
            _ if self.denied => Outcome::Denied,
            Some(wait) if !wait.is_zero() => Outcome::Delayed(wait),
            _ => Outcome::Allowed,
        }
    }

    #[inline]
    const fn blocks(&self) -> bool {
        matches!(self.cause, DenialCause::Block)
    }

    const fn is_shed(&self) -> bool {
        self.denied && matches!(self.cause, DenialCause::Class | DenialCause::ClassOverflow)
    }

    /// The ruling of several limits, before it has that of one: [`join`](Self::join) adds each.
    const OF_NONE: Self = Self {
        charged: u64::MAX,
        cause: DenialCause::Class,
        counted_by: CountedBy::Nobody,
        ..Self::new(Outcome::Allowed, 0, Timestamp::from_micros(0))
    };

    /// Adds the ruling of another limit. All are denied if one of them denies, otherwise delayed by the longest delay.
    #[inline(always)]
    fn join(&mut self, own: &Self) {
        self.delay = self.delay.max(own.delay);
        self.denied |= own.denied;
        self.excess |= own.excess;
        self.degraded = self.degraded.or(own.degraded);
        // A degraded limit that charged nothing does not lower the charge of the others.
        if own.degraded.is_none() || own.charged > 0 {
            self.charged = self.charged.min(own.charged);
        }
        if !own.counted_by.is_nobody() {
            self.counted_by = own.counted_by;
        }
        if own.blocks() {
            self.cause = DenialCause::Block;
        } else if own.denied && !own.is_shed() && !self.blocks() {
            self.cause = DenialCause::Quotas;
        }
    }

    /// The ruling of all limits that were joined, with the time and tier of the first.
    const fn of_all(mut self, first: &Self) -> Self {
        if self.charged == u64::MAX {
            self.charged = 0;
        }
        if self.denied {
            self.delay = 0;
        } else if matches!(self.cause, DenialCause::Class) {
            self.cause = DenialCause::Quotas;
        }
        self.charged_at = first.charged_at;
        self.tier = first.tier;
        self
    }
}

/// A number that is not known.
#[doc(hidden)]
pub const UNKNOWN: u64 = u64::MAX;

/// The largest number that is known. As a time it stands for [`Duration::MAX`] and all that do not fit, which are longer
/// than 584 years.
const LONGEST: u64 = UNKNOWN - 1;

/// Whole seconds, rounded up, so that a client that waits this long does not retry too early.
#[doc(hidden)]
pub const fn whole_seconds(duration: Duration) -> u64 {
    let partial = duration.subsec_nanos() > 0;
    duration.as_secs().saturating_add(partial as u64)
}

pub(crate) const fn nanos_of(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        LONGEST
    } else if nanos >= LONGEST as u128 {
        LONGEST - 1
    } else {
        nanos as u64
    }
}

/// The time in microseconds, rounded up; `None` if it is unknown.
const fn time_of(nanos: u64) -> Option<Duration> {
    match nanos {
        UNKNOWN => None,
        LONGEST => Some(Duration::MAX),
        nanos => Some(Duration::from_micros(nanos.div_ceil(1_000))),
    }
}

/// The time in whole seconds, rounded up; `None` if it is unknown.
#[inline]
const fn seconds_of(nanos: u64) -> Option<u64> {
    match nanos {
        UNKNOWN => None,
        LONGEST => Some(whole_seconds(Duration::MAX)),
        nanos => Some(nanos.div_ceil(1_000_000_000)),
    }
}

/// Nanoseconds of a time in microseconds, rounded up.
const fn whole_micros(nanos: u64) -> u64 {
    nanos.div_ceil(1_000).saturating_mul(1_000)
}
