//! Blocks: keys that are denied until an instant, whatever their quotas hold.

use std::time::Duration;

use super::call::OpRef;
use crate::{algorithm::State, quota::MAX_REFILL_NANOS};

/// The lowest bit of the instant marks a block by hand. Operations come at whole microseconds, which
/// are even numbers of nanoseconds, so the bit does not change which of them are denied.
const BY_HAND: u64 = 1;

/// The instant until which a key is blocked, in nanoseconds, and whether it was blocked by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Block(u64);

impl Block {
    pub(crate) const NONE: Self = Self(0);

    /// A block of `length` nanoseconds that a denial starts.
    #[doc(hidden)]
    pub const fn of(now: u64, length: u64) -> Self {
        Self(now.saturating_add(length).saturating_add(1) & !BY_HAND)
    }

    /// A block that ends at this instant, rounded like the times of decisions.
    #[doc(hidden)]
    pub const fn until(end: u64, is_by_hand: bool) -> Self {
        match (end, is_by_hand) {
            (0, _) => Self::NONE,
            (end, true) => Self((end - 1) | BY_HAND),
            (end, false) => Self::of(end, 0),
        }
    }

    pub(crate) fn by_hand(now: u64, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        match nanos.min(MAX_REFILL_NANOS) {
            0 => Self::NONE,
            nanos => Self((now.saturating_add(nanos) - 1) | BY_HAND),
        }
    }

    /// The block as the state of a table entry, and the instant at which it ends.
    pub(crate) const fn to_state(self) -> (State, u64) {
        (State::Instant(self.0), self.0)
    }

    pub(crate) const fn from_state(state: &State) -> Self {
        match state {
            State::Instant(until) => Self(*until),
            _ => Self::NONE,
        }
    }

    /// Nanoseconds until the block ends. If the clock stepped back, at most the length of a denial's
    /// block, or the longest by hand.
    #[doc(hidden)]
    pub fn left(&mut self, now: u64, block_for: Option<u64>) -> u64 {
        let by_hand = self.0 & BY_HAND;
        let longest = block_for.filter(|_| by_hand == 0);
        let latest = Self::of(now, longest.unwrap_or(MAX_REFILL_NANOS)).0;
        self.0 = self.0.min(latest - by_hand);
        self.0.saturating_sub(now)
    }
}

/// The operation on a blocked key instead of one that would take units or start a block: a peek. For
/// an acquisition of up to some units it peeks one, because one unit is enough to allow it.
pub(crate) fn instead_of(op: OpRef<'_>) -> Option<OpRef<'_>> {
    match op {
        OpRef::Acquire(cost) | OpRef::Reserve(cost) | OpRef::Deny(cost) => Some(OpRef::Peek(cost)),
        OpRef::AcquireUpTo(most) => Some(OpRef::Peek(most.min(1))),
        _ => None,
    }
}
