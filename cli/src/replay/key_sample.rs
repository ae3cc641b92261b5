//! A fair sample of keys, in constant memory.
//!
//! Beyond a number of keys, only those with a hash below a threshold are kept. The threshold falls
//! as keys arrive, so shares and percentiles remain those of all keys.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

use tower_ratelimit::Key;

/// The sampled values, by the hashes of keys.
#[derive(Debug)]
pub(super) struct Sample<T> {
    keys: HashMap<u64, T, BuildHasherDefault<Identity>>,
    most: usize,
    /// Hashes with at least this many leading zeros are kept.
    zeros: u32,
}

/// A hasher for keys that are hashes.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<T: Default> Sample<T> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            keys: HashMap::default(),
            most: most.max(1),
            zeros: 0,
        }
    }

    /// Changes the value of a key, if the key is in the sample.
    pub(super) fn note(&mut self, key: &Key, change: impl FnOnce(&mut T)) {
        let hash = hash_of(key);
        if hash.leading_zeros() < self.zeros {
            return;
        }
        change(self.keys.entry(hash).or_default());
        while self.keys.len() > self.most {
            self.zeros += 1;
            let zeros = self.zeros;
            self.keys.retain(|hash, _| hash.leading_zeros() >= zeros);
        }
    }

    /// The number of keys; an estimate for a sample.
    pub(super) fn number(&self) -> u64 {
        self.estimate(self.keys.len())
    }

    pub(super) const fn is_part(&self) -> bool {
        self.zeros > 0
    }

    /// The number of keys with this property; an estimate for a sample.
    pub(super) fn number_of(&self, holds: impl Fn(&T) -> bool) -> u64 {
        self.estimate(self.keys.values().filter(|known| holds(known)).count())
    }

    /// All sampled values except that of one key.
    pub(super) fn but(&self, one: &Key) -> impl Iterator<Item = &T> {
        let one = hash_of(one);
        let others = self.keys.iter().filter(move |(hash, _)| **hash != one);
        others.map(|(_, known)| known)
    }

    fn estimate(&self, kept: usize) -> u64 {
        (kept as u64) << self.zeros
    }
}

/// A hash that is equal in all runs.
pub(super) fn hash_of(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}
