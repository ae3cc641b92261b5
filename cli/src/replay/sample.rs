//! A fair sample of keys, in constant memory.
//!
//! Beyond a number of keys only those whose hash is below a threshold are kept, which falls as keys
//! come: those that stay are a fair sample, so shares and percentiles stay what they are.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

use tower_ratelimit::Key;

/// Keys by their hashes, and what is known of each.
#[derive(Debug)]
pub(super) struct Sample<T> {
    keys: HashMap<u64, T, BuildHasherDefault<Identity>>,
    most: usize,
    /// Hashes with this many leading zeros are kept.
    zeros: u32,
}

/// A hash is a hash already.
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

    /// Changes what is known of a key, if it is one of the sample.
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

    /// How many keys there are; an estimate if it is a sample.
    pub(super) fn number(&self) -> u64 {
        self.estimate(self.keys.len())
    }

    pub(super) const fn is_part(&self) -> bool {
        self.zeros > 0
    }

    /// How many keys there are of which this holds; an estimate if it is a sample.
    pub(super) fn number_of(&self, holds: impl Fn(&T) -> bool) -> u64 {
        self.estimate(self.keys.values().filter(|known| holds(known)).count())
    }

    /// All that are kept, but one.
    pub(super) fn but(&self, one: &Key) -> impl Iterator<Item = &T> {
        let one = hash_of(one);
        let others = self.keys.iter().filter(move |(hash, _)| **hash != one);
        others.map(|(_, known)| known)
    }

    fn estimate(&self, kept: usize) -> u64 {
        (kept as u64) << self.zeros
    }
}

/// The same in every run.
pub(super) fn hash_of(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}
