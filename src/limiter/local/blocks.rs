//! Blocks by hand of a limiter whose table has no room for them.

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
use crate::{limiter::block::Block, lock::unpoisoned};

/// The number of blocks among which one is evicted.
const BLOCKS_SEARCHED: usize = 16;

/// Keys that were blocked by hand, of a limiter whose table has no room for blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The instant at which the last block ends. After it requests take no lock; most limiters never have
    /// a block.
    last_end: AtomicU64,
    /// Hashed again without a key of its own: a `KeyHash` is keyed already, and so its order repeats with a seed.
    blocks: RwLock<HashMap<KeyHash, Block, BuildHasherDefault<DefaultHasher>>>,
}

impl Blocks {
    /// Whether any key may be blocked at `now`.
    #[inline]
    pub(super) fn are_any(&self, now: u64) -> bool {
        self.last_end.load(Ordering::Acquire) > now
    }

    /// Nanoseconds until the block of this key ends.
    pub(super) fn left(&self, key: KeyHash, now: u64) -> u64 {
        let blocks = unpoisoned(self.blocks.read());
        let block = blocks.get(&key).copied();
        block.map_or(0, |mut block| block.left(now, None))
    }

    /// Blocks a key, or ends its block. If `most` keys are blocked, evicts the block that ends first of a
    /// few.
    pub(super) fn set(&self, key: KeyHash, now: u64, length: Duration, most: usize) {
        self.put(key, now, Block::by_hand(now, length), most);
    }

    /// Replaces the block of a key, see [`set`](Self::set).
    pub(super) fn put(&self, key: KeyHash, now: u64, mut block: Block, most: usize) {
        let mut blocks = unpoisoned(self.blocks.write());
        blocks.remove(&key);
        if block == Block::NONE {
            return;
        }
        if blocks.len() >= most {
            let few = blocks.iter().take(BLOCKS_SEARCHED);
            let first = few
                .min_by_key(|(_, block)| block.to_state().1)
                .map(|(key, _)| *key);
            first.and_then(|first| blocks.remove(&first));
        }
        blocks.insert(key, block);
        let end = now.saturating_add(block.left(now, None));
        self.last_end.fetch_max(end, Ordering::AcqRel);
    }

    /// All blocks that have not ended, by the tag of the key.
    pub(super) fn all(&self, now: u64) -> HashMap<u64, Block> {
        let blocks = unpoisoned(self.blocks.read());
        let live = blocks.iter().filter(|(_, block)| block.to_state().1 > now);
        live.map(|(key, block)| (key.tag, *block)).collect()
    }

    /// Removes all blocks, and returns them with the time left of each.
    pub(super) fn take(&self, now: u64) -> Vec<(KeyHash, Duration)> {
        let mut blocks = unpoisoned(self.blocks.write());
        let left = |(key, mut block): (KeyHash, Block)| {
            let left = block.left(now, None);
            (left > 0).then_some((key, Duration::from_nanos(left)))
        };
        blocks.drain().filter_map(left).collect()
    }
}
