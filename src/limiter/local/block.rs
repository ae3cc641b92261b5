//! Blocks: keys that stay out until an instant, whatever their quotas say.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher},
    sync::{
        RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::hash::KeyHash;
use crate::{algorithm::State, decision::Op, lock::unpoisoned, quota::MAX_REFILL_NANOS};

/// The lowest bit of the instant marks a block by hand. Operations come at whole microseconds,
/// which are even numbers of nanoseconds: an end that is moved by one keeps out the same ones.
const BY_HAND: u64 = 1;

/// The instant until which a key stays out, and whether it was blocked by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block(u64);

impl Block {
    pub(super) const NONE: Self = Self(0);

    /// A block of `length` nanoseconds that a denial starts.
    pub(super) const fn of(now: u64, length: u64) -> Self {
        Self(now.saturating_add(length).saturating_add(1) & !BY_HAND)
    }

    pub(super) fn by_hand(now: u64, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        match nanos.min(MAX_REFILL_NANOS) {
            0 => Self::NONE,
            nanos => Self((now.saturating_add(nanos) - 1) | BY_HAND),
        }
    }

    /// The block as the state of an entry, and the instant at which it ends.
    pub(super) const fn to_state(self) -> (State, u64) {
        (State::Instant(self.0), self.0)
    }

    pub(super) const fn from_state(state: &State) -> Self {
        match state {
            State::Instant(until) => Self(*until),
            _ => Self::NONE,
        }
    }

    /// How much longer the key stays out. A clock that stepped back must not make it longer than
    /// the block of a denial lasts.
    pub(super) fn left(&mut self, now: u64, block_for: Option<u64>) -> u64 {
        if self.0 & BY_HAND == 0
            && let Some(longest) = block_for
        {
            self.0 = self.0.min(Self::of(now, longest).0);
        }
        self.0.saturating_sub(now)
    }
}

/// The operation that a blocked key is asked instead of one that would take units or start a block:
/// a look, for which one unit is what taking up to some number hangs on.
pub(super) fn instead_of(op: &Op) -> Option<Op> {
    match op {
        Op::Acquire(cost) | Op::Reserve(cost) | Op::Deny(cost) => Some(Op::Peek(*cost)),
        Op::AcquireUpTo(most) => Some(Op::Peek((*most).min(1))),
        _ => None,
    }
}

/// How many blocks are looked at for one that gives way.
const LOOKED_AT: usize = 16;

/// Keys that were blocked by hand, of a limiter whose table has no room for blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The instant at which the last of them ends: most limiters never have one, and after it their
    /// requests take no lock.
    last_end: AtomicU64,
    /// The hashes are keyed already; so the order depends on them alone, which a seed repeats.
    blocks: RwLock<HashMap<KeyHash, Block, BuildHasherDefault<DefaultHasher>>>,
}

impl Blocks {
    /// Whether any key may be blocked.
    #[inline]
    pub(super) fn are_any(&self, now: u64) -> bool {
        self.last_end.load(Ordering::Acquire) > now
    }

    /// How much longer this key stays out.
    pub(super) fn left(&self, key: KeyHash, now: u64) -> u64 {
        let blocks = unpoisoned(self.blocks.read());
        let block = blocks.get(&key).copied();
        block.map_or(0, |mut block| block.left(now, None))
    }

    /// Blocks a key, or ends its block. Where as many are blocked as `most`, one of a few gives
    /// way: the one that ends first.
    pub(super) fn set(&self, key: KeyHash, now: u64, length: Duration, most: usize) {
        let mut block = Block::by_hand(now, length);
        let mut blocks = unpoisoned(self.blocks.write());
        blocks.remove(&key);
        if block == Block::NONE {
            return;
        }
        if blocks.len() >= most {
            let few = blocks.iter().take(LOOKED_AT);
            let first = few.min_by_key(|(_, block)| block.0).map(|(key, _)| *key);
            first.and_then(|first| blocks.remove(&first));
        }
        blocks.insert(key, block);
        let end = now.saturating_add(block.left(now, None));
        self.last_end.fetch_max(end, Ordering::AcqRel);
    }

    /// Takes all blocks out, with the time that is left of each.
    pub(super) fn take(&self, now: u64) -> Vec<(KeyHash, Duration)> {
        let mut blocks = unpoisoned(self.blocks.write());
        let left = |(key, mut block): (KeyHash, Block)| {
            let left = block.left(now, None);
            (left > 0).then_some((key, Duration::from_nanos(left)))
        };
        blocks.drain().filter_map(left).collect()
    }
}
