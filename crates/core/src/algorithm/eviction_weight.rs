//! Weights for eviction: the usage that is lost with a state, known without its quota.

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
