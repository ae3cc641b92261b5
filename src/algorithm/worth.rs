//! Weights: how much would be forgotten with a state, also told without its quota.

/// How much would be forgotten with a state: the key with the least of it gives way where there is
/// no room for all. The default is nothing at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weight {
    /// How much longer the key is blocked: a blocked key outweighs all others.
    pub(crate) blocked: u64,
    /// The time in which flows back what was used, or less if the key is fresh before that; but all
    /// of it for a key that is exhausted. So a day's quota that is used up outweighs a second's.
    pub(crate) time: u64,
    /// The time in which flows back what was used.
    pub(crate) used: u64,
}

/// Low bits that say how a state is forgotten.
const HOLD_BITS: u32 = 3;
/// Set while a call has the state in its hands: nobody may replace it meanwhile.
const PINNED: u64 = 1 << 2;

/// How the weight of a state changes while nothing comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fading {
    /// All that was used flows back until the instant: a bucket.
    Flows = 0,
    /// Units that were counted stay until they leave.
    Counts = 1,
    /// The same, and nothing is left.
    Exhausted = 2,
    /// The key is kept out until the instant.
    Blocks = 3,
}

/// The instant from which a state has nothing left to remember, and how much would be forgotten
/// with it before: written beside the state by whoever writes that, so that the place can be given
/// away by those who do not know its quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Worth {
    fresh_at: u64,
    /// The nanoseconds in which flows back what was used when the state was written; below them the
    /// pin and the hold.
    used: u64,
}

impl Worth {
    pub(crate) const fn new(fresh_at: u64, used: u64, hold: Fading) -> Self {
        const MOST: u64 = u64::MAX >> HOLD_BITS;
        let used = if used > MOST { MOST } else { used };
        Self {
            fresh_at,
            used: used << HOLD_BITS | hold as u64,
        }
    }

    /// That of a key which is kept out until this instant.
    pub(crate) const fn of_block(until: u64) -> Self {
        Self::new(until, 0, Fading::Blocks)
    }

    /// Whether there is nothing to remember from `now` on.
    pub(crate) const fn is_nothing(self, now: u64) -> bool {
        self.fresh_at <= now
    }

    pub(crate) const fn pin(&mut self) {
        self.used |= PINNED;
    }

    pub(crate) const fn is_pinned(self) -> bool {
        self.used & PINNED != 0
    }

    /// The weight at `now`.
    pub(crate) fn at(self, now: u64) -> Weight {
        let left = self.fresh_at.saturating_sub(now);
        if left == 0 {
            return Weight::default();
        }
        let used = self.used >> HOLD_BITS;
        let (blocked, time, used) = match self.used & 3 {
            hold if hold == Fading::Blocks as u64 => (left, 0, 0),
            hold if hold == Fading::Flows as u64 => (0, used.min(left), used.min(left)),
            hold if hold == Fading::Exhausted as u64 => (0, used, used),
            _ => (0, used.min(left), used),
        };
        Weight {
            blocked,
            time,
            used,
        }
    }
}
