//! The arithmetic: pure functions of the old state, the time, the quota and the operation.
//!
//! No function reads a clock or keeps state, so that all stores decide alike. Times are nanoseconds
//! since the epoch; the current time is a whole number of microseconds.
//!
//! Each algorithm computes from its state whether a cost fits ([`Verdict`]), the units left, and the
//! time until the state is fresh. [`Counters`] builds the operations from these, for one quota or for
//! several that are charged together.

mod bucket;
#[cfg(feature = "calendar")]
mod calendar_windows;
mod compiled_quota;
mod decide;
mod fixed_window;
mod sliding_log;
mod sliding_window;
mod state;
pub mod state_text;
mod varying;

use crate::{
    decision::{Charge, Status, UNKNOWN},
    quota::{MAX_COUNT, Priority, Quota},
};

pub use self::{
    bucket::{Bucket, TokenBucket},
    compiled_quota::Meter,
    decide::{CounterIndex, Counters, Judgement, States},
    fixed_window::{Window, long_window_begins},
    sliding_log::Log,
    sliding_window::Slices,
    state::State,
    varying::least_limit_begins,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The cost fits, after `wait` nanoseconds in the queue.
    Fits { wait: u64 },
    /// The cost fits after this many nanoseconds if no other request comes.
    After(u64),
    /// The cost never fits.
    Never,
}

impl Verdict {
    pub const FITS: Self = Self::Fits { wait: 0 };

    pub const fn fits(self) -> bool {
        matches!(self, Self::Fits { .. })
    }

    /// The numbers of a quota for a decision, after this verdict.
    #[inline]
    pub const fn explain(self, status: Status) -> Status {
        match self {
            Self::Fits { .. } => status,
            Self::After(wait) => status.denied(wait),
            Self::Never => status.denied(UNKNOWN),
        }
    }

    /// Joins two verdicts: the worse one, or the longer wait.
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::After(one), Self::After(two)) => Self::After(one.max(two)),
            (Self::After(wait), _) | (_, Self::After(wait)) => Self::After(wait),
            (Self::Fits { wait: one }, Self::Fits { wait: two }) => {
                Self::Fits { wait: one.max(two) }
            }
        }
    }
}

/// The view that an operation has of a quota: the share of its class of requests, less the units that leases hold.
/// The state is the whole quota's, whatever the view is: clamps, refunds and settlements need none.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// A cost fits while all that was used, by whatever class, fits in the part of this class.
    pub class: Priority,
    /// Results are those after a charge of these units. The wait of a denial is computed for a charge at the end of the
    /// leases, the latest possible time.
    pub held: Option<&'a Held>,
}

/// Units that leases reserve: counted in addition to a state until they are settled.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub units: u64,
    /// Nanoseconds in which a bucket refills them, each at the rate under which it was leased.
    pub nanos: u64,
    /// The instant at which the last of the leases ends.
    pub until: u64,
}

impl<'a> View<'a> {
    /// The view of critical requests, while no units are held.
    pub const WHOLE: Self = Self {
        class: Priority::CRITICAL,
        held: None,
    };

    /// The view of the quota at a place; `held` may be empty.
    #[inline]
    pub fn of(class: Priority, held: &'a [Option<Held>], place: usize) -> Self {
        let held = held.get(place).and_then(Option::as_ref);
        Self { class, held }
    }

    #[inline]
    const fn is_whole(&self) -> bool {
        self.class.is_critical() && self.held.is_none()
    }
}

/// The largest value of a counter: that of the largest quota that shares it. A larger value comes from
/// a clock that stepped back or from a larger quota, and is clamped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Most {
    /// Nanoseconds in which a bucket fills.
    pub nanos: u64,
    pub units: u64,
}

impl Most {
    pub fn of(quota: &Quota) -> Self {
        Self::of_units(quota, quota.capacity() + quota.extra() + quota.debt_units())
    }

    /// The largest value without a debt.
    pub fn without_debt(quota: &Quota) -> Self {
        Self::of_units(quota, quota.capacity() + quota.extra())
    }

    fn of_units(quota: &Quota, units: u64) -> Self {
        Self {
            nanos: quota.interval_nanos().saturating_mul(units),
            units: if quota.is_uncapped() {
                MAX_COUNT
            } else {
                units
            },
        }
    }

    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.max(other.nanos),
            units: self.units.max(other.units),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Refund {
    cost: u64,
    of: RefundOf,
}

/// The charge that a refund belongs to.
#[derive(Debug, Clone, Copy)]
enum RefundOf {
    Newest,
    /// A charge of this counter at this time, in nanoseconds.
    At(u64, Charge),
}

impl Charge {
    /// Whether a bucket that refills a unit in `interval` nanoseconds and fills in `full` nanoseconds
    /// could have made this charge.
    ///
    /// After a change from a burst of 100 to one of 5, a hundred open requests may hold receipts for a
    /// hundred units, and the clamp has left five of these units. Without this check, each receipt
    /// could be refunded and its unit taken again, all at one instant.
    const fn fits(&self, charged_at: u64, interval: u64, full: u64) -> bool {
        self.interval == interval && self.end.saturating_sub(charged_at) <= full
    }
}

impl Refund {
    /// The most nanoseconds that a refund at `now` returns to a bucket of `capacity` units.
    ///
    /// The refund of each unit shrinks by 1 / `capacity` of the time since the charge, to zero over the
    /// time of a full bucket. Otherwise requests that begin together and end one after another would
    /// return units that have refilled already: empty the bucket, keep the last request open, end the
    /// others, repeat; the open ones then return far more than a bucket at once. With it, at most
    /// 2 · capacity + rate · L units pass in any time L.
    fn nanos(self, now: u64, interval: u64, capacity: u64) -> u64 {
        let (charged_at, charge) = match self.of {
            RefundOf::Newest => return self.cost.saturating_mul(interval),
            RefundOf::At(charged_at, charge) => (charged_at, charge),
        };
        let Some(elapsed) = now.checked_sub(charged_at) else {
            // The clock has stepped back since the charge, and the clamp may have moved the bucket.
            return 0;
        };
        let unit = charge
            .interval
            .saturating_sub(elapsed.div_ceil(capacity.max(1)));
        let back = self.cost.saturating_mul(unit);
        back.min(charge.end.saturating_sub(now))
    }
}

/// The low bits that encode how the weight of a state changes.
const HOLD_BITS: u32 = 3;
/// Never set.
const UNUSED: u64 = 1 << 2;

/// The change of a state's weight while no request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fading {
    /// All used units return evenly until the instant: a bucket.
    Flows = 0,
    /// Units count fully until they leave: a window or log with units left.
    Counts = 1,
    /// Units count fully until they leave, and no unit is left.
    Exhausted = 2,
    /// The key is blocked until the instant.
    Blocks = 3,
}

/// The instant from which a state is fresh, and its weight until then. Each write of a state also
/// writes this beside it, so that the state can be evicted without its quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvictionWeight {
    fresh_at: u64,
    /// Nanoseconds in which the units used at the last write return; the low bits are the
    /// way in which the weight changes.
    used: u64,
}

impl EvictionWeight {
    /// The [loss](Self::at) of a fresh state.
    pub const FRESH: [u64; 3] = [0; 3];

    pub const fn new(fresh_at: u64, used: u64, hold: Fading) -> Self {
        const MOST: u64 = u64::MAX >> HOLD_BITS;
        let used = if used > MOST { MOST } else { used };
        Self {
            fresh_at,
            used: used << HOLD_BITS | hold as u64,
        }
    }

    /// The weight of a key that is blocked until this instant.
    pub(crate) const fn of_block(until: u64) -> Self {
        Self::new(until, 0, Fading::Blocks)
    }

    /// The instant and the used units as numbers of a state file.
    pub(crate) const fn to_numbers(self) -> [u64; 2] {
        [self.fresh_at, self.used]
    }

    /// The weight of these numbers; `None` if they are of no weight.
    pub(crate) fn from_numbers([fresh_at, used]: [u64; 2]) -> Option<Self> {
        (used & UNUSED == 0).then_some(Self { fresh_at, used })
    }

    /// The instant until which the key is blocked; 0 for a state.
    pub(crate) const fn blocked_until(self) -> u64 {
        if self.used & 3 == Fading::Blocks as u64 {
            self.fresh_at
        } else {
            0
        }
    }

    /// Whether the state is fresh from `now` on.
    pub(crate) const fn is_nothing(self, now: u64) -> bool {
        self.fresh_at <= now
    }

    /// The usage that is lost with the state at `now`; a full table evicts the state with the least. All are nanoseconds:
    /// until its block ends, so that a block outweighs all states; in which the used units return, or fewer if the
    /// state is fresh earlier and not exhausted, so that an exhausted quota of a day outweighs one of a second; and in
    /// which the used units return.
    pub(crate) fn at(self, now: u64) -> [u64; 3] {
        let left = self.fresh_at.saturating_sub(now);
        if left == 0 {
            return Self::FRESH;
        }
        let used = self.used >> HOLD_BITS;
        match self.used & 3 {
            hold if hold == Fading::Blocks as u64 => [left, 0, 0],
            hold if hold == Fading::Flows as u64 => [0, used.min(left), used.min(left)],
            hold if hold == Fading::Exhausted as u64 => [0, used, used],
            _ => [0, used.min(left), used],
        }
    }
}
