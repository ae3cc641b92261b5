//! A limit on a store: its quotas, and the names of its counters there.

use std::{ops::Deref, sync::Arc};

use super::super::{
    hash::{KeyHash, KeyHasher},
    live::{InForce, LiveLimits},
};
use crate::limiter::limits::Limits;

/// A limit whose counts are kept in a store.
#[derive(Debug)]
pub(in super::super) struct StoredLimit {
    /// Told apart from all other limits of the store.
    pub(super) id: KeyHash,
    /// The same for the entries that it has, while it is in the store.
    pub(super) number: u32,
    pub(super) live: Arc<LiveLimits<Arc<StoredCounters>>>,
}

/// The quotas in force, and the names of the states that they count with.
#[derive(Debug, Clone)]
pub(in super::super) struct StoredCounters {
    pub(in super::super) limits: Arc<Limits>,
    /// One for each state.
    pub(super) states: Box<[KeyHash]>,
    /// The name of a block's entry.
    block: KeyHash,
}

/// Quotas in force, or those that were when a call began.
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

/// The hash by which limits of one store are told apart: of all that counters have in common whose
/// states mean the same.
fn name_of(hasher: &KeyHasher, parts: &[&[u8]]) -> KeyHash {
    let mut name = Vec::new();
    for part in parts {
        name.extend((part.len() as u64).to_le_bytes());
        name.extend_from_slice(part);
    }
    hasher.hash_bytes(&name)
}

impl StoredLimit {
    /// The id of the limit of this name, which others of the same name share their counts with;
    /// without a name that of this limiter alone.
    pub(super) fn id_of(hasher: &KeyHasher, name: Option<&str>, limiter: u64) -> KeyHash {
        match name {
            Some(name) => name_of(hasher, &[b"named", name.as_bytes()]),
            None => name_of(hasher, &[b"own", &limiter.to_le_bytes()]),
        }
    }

    pub(super) const fn new(
        id: KeyHash,
        number: u32,
        live: Arc<LiveLimits<Arc<StoredCounters>>>,
    ) -> Self {
        Self { id, number, live }
    }

    /// The quotas in force. They are kept without their lock: calls about several limits would wait
    /// for each other, if quotas are replaced meanwhile.
    #[inline]
    pub(in super::super) fn read(&self) -> CountersInForce<'_> {
        match self.live.read() {
            InForce::First(first) => CountersInForce::First(first),
            InForce::Current(current) => CountersInForce::Current(Arc::clone(&current)),
        }
    }

    /// Whether both count in the same entries.
    pub(in super::super) fn counts_with(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// The identity of the entries that it counts in.
    pub(in super::super) const fn tag(&self) -> u64 {
        self.id.tag
    }

    /// Chooses the shard for a key: the same for all its states and its block.
    #[inline]
    pub(super) const fn shard_bits(&self, key: KeyHash) -> u64 {
        key.tag ^ self.id.tag
    }
}

impl StoredCounters {
    pub(super) fn new(hasher: &KeyHasher, id: KeyHash, limits: Arc<Limits>) -> Self {
        let width = limits.width();
        let states = limits.counted().enumerate().map(|(place, counter)| {
            let half = [u8::from(place >= width)];
            let Some((at, kind)) = counter else {
                return name_of(hasher, &[b"free", &id.to_bytes(), &place.to_le_bytes()]);
            };
            let name = limits.shared_name(at);
            let kind = kind.get().to_le_bytes();
            name_of(hasher, &[b"state", &id.to_bytes(), &name, &kind, &half])
        });
        Self {
            states: states.collect(),
            block: name_of(
                hasher,
                &[
                    b"block",
                    &id.to_bytes(),
                    &limits.epoch().mark().to_le_bytes(),
                ],
            ),
            limits,
        }
    }

    #[inline]
    pub(super) fn block_of(&self, key: KeyHash) -> KeyHash {
        key.mixed_with(self.block)
    }
}
