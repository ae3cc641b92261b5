//! A limit in a store: its quotas, and the names of its counters.

use std::{ops::Deref, sync::Arc};

use super::locks::ShardIndex;
use crate::hash::{KeyHash, KeyHasher};
use crate::limiter::tier_set::{ChangingLimits, InForce, TierSet};

/// The number of the limit in a table that no other limit is in.
pub(in super::super) const ONLY_LIMIT: u32 = 1;

/// A limit that counts in a store.
#[derive(Debug)]
pub(in super::super) struct StoredLimit {
    /// The identity; unique among all limits of the store.
    pub(super) id: KeyHash,
    /// The number of the limit's entries; unique among the limits that are in the store now.
    pub(super) number: u32,
    pub(super) live: Arc<ChangingLimits<Arc<StoredCounters>>>,
}

/// The quotas in force, and the names of their states.
#[derive(Debug, Clone)]
pub(in super::super) struct StoredCounters {
    pub(in super::super) limits: Arc<TierSet>,
    /// The name of each state.
    pub states: Box<[KeyHash]>,
    /// The name of the block's entry.
    block: KeyHash,
}

/// The shard of the entry with this tag.
#[inline]
pub(super) const fn shard_of_tag(tag: u64, shards: usize) -> ShardIndex {
    ShardIndex(((tag & SHARD_BITS) as u32 % shards as u32) as usize)
}

/// The quotas in force at the beginning of a call.
pub(in super::super) enum CountersInForce<'a> {
    First(&'a StoredCounters),
    Current(Arc<StoredCounters>),
}

impl Deref for CountersInForce<'_> {
    type Target = StoredCounters;

    #[inline]
    fn deref(&self) -> &StoredCounters {
        match self {
            Self::First(first) => first,
            Self::Current(current) => current,
        }
    }
}

/// The bits of a name's tag that all counters of a limit share. They choose the shard of a key, so that
/// the tag of an entry is enough to find its shard in a table of another size. There are at most 2^22
/// shards.
const SHARD_BITS: u64 = (1 << 24) - 1;

/// The hash that identifies counters in a store: equal for counters whose states have one meaning.
fn name_of(hasher: &KeyHasher, parts: &[&[u8]]) -> KeyHash {
    let mut name = Vec::new();
    for part in parts {
        name.extend((part.len() as u64).to_le_bytes());
        name.extend_from_slice(part);
    }
    hasher.hash_bytes(&name)
}

impl StoredLimit {
    /// The identity of the limits of this name, which share their counts; without a name, an identity of
    /// this limiter alone.
    pub(super) fn id_of(hasher: &KeyHasher, name: Option<&str>, limiter: u64) -> KeyHash {
        match name {
            Some(name) => name_of(hasher, &[b"named", name.as_bytes()]),
            None => name_of(hasher, &[b"own", &limiter.to_le_bytes()]),
        }
    }

    pub(crate) const fn new(
        id: KeyHash,
        number: u32,
        live: Arc<ChangingLimits<Arc<StoredCounters>>>,
    ) -> Self {
        Self { id, number, live }
    }

    /// The quotas in force, cloned out of their lock: calls on several limits that held such locks could
    /// wait for each other while quotas are replaced.
    #[inline]
    pub(in super::super) fn read(&self) -> CountersInForce<'_> {
        match self.live.read() {
            InForce::First(first) => CountersInForce::First(first),
            InForce::Current(current) => CountersInForce::Current(Arc::clone(&current)),
        }
    }

    /// Whether both count with the same counters.
    pub(in super::super) fn counts_with(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// The identity of the limit's counters.
    pub(in super::super) const fn tag(&self) -> u64 {
        self.id.tag
    }

    /// The shard of a key among `shards`: one for all its states and its block.
    #[inline]
    pub(super) const fn shard(&self, key: KeyHash, shards: usize) -> ShardIndex {
        shard_of_tag(key.tag ^ self.id.tag, shards)
    }
}

impl StoredCounters {
    pub(crate) fn new(hasher: &KeyHasher, id: KeyHash, limits: Arc<TierSet>) -> Self {
        let name_of = |parts: &[&[u8]]| {
            let own = name_of(hasher, parts).tag & !SHARD_BITS;
            KeyHash::of_tag(own | id.tag & SHARD_BITS)
        };
        let width = limits.width();
        let states = limits.counted().enumerate().map(|(place, counter)| {
            let half = [u8::from(place >= width)];
            let Some((at, kind)) = counter else {
                return name_of(&[b"free", &id.to_bytes(), &place.to_le_bytes()]);
            };
            let name = limits.shared_name(at);
            let kind = kind.get().to_le_bytes();
            name_of(&[b"state", &id.to_bytes(), &name, &kind, &half])
        });
        Self {
            states: states.collect(),
            block: name_of(&[
                b"block",
                &id.to_bytes(),
                &limits.counter_mark().to_le_bytes(),
            ]),
            limits,
        }
    }

    /// The names of a limiter's counters in a table that no other limit is in.
    pub(in super::super) fn alone(hasher: &KeyHasher, limits: Arc<TierSet>) -> Self {
        Self::new(hasher, StoredLimit::id_of(hasher, None, 0), limits)
    }

    /// The tag of a key's only state, and the key's own tag from that.
    pub(in super::super) fn lone_tag(&self, tag: u64) -> u64 {
        KeyHash::of_tag(tag ^ self.states[0].tag).tag
    }

    /// Whether an entry of this tag is a state of the key.
    pub(super) fn owns(&self, key: KeyHash, tag: u64) -> bool {
        let mut names = self.states.iter();
        names.any(|name| key.mixed_with(*name).tag == tag)
    }

    #[inline]
    pub(super) fn block_of(&self, key: KeyHash) -> KeyHash {
        key.mixed_with(self.block)
    }
}
