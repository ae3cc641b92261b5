//! Blocks by hand, of a limiter whose table has no room for them.

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
            let first = few
                .min_by_key(|(_, block)| block.to_state().1)
                .map(|(key, _)| *key);
            first.and_then(|first| blocks.remove(&first));
        }
        blocks.insert(key, block);
        let end = now.saturating_add(block.left(now, None));
        self.last_end.fetch_max(end, Ordering::AcqRel);
    }

    /// Ends all blocks.
    pub(super) fn clear(&self) {
        unpoisoned(self.blocks.write()).clear();
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
