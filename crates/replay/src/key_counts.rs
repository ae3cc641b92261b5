//! Values and counts of keys, in constant memory: a fair sample of all, and the keys that are counted most.

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

use tower_ratelimit::Key;

/// The sampled values, by the hashes of keys.
#[derive(Debug)]
pub(crate) struct Sample<T> {
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
    pub(crate) fn new(most: usize) -> Self {
        Self {
            keys: HashMap::default(),
            most: most.max(1),
            zeros: 0,
        }
    }

    /// Changes the value of a key, if the key is in the sample.
    pub(crate) fn note(&mut self, key: &Key, change: impl FnOnce(&mut T)) {
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
    pub(crate) fn number(&self) -> u64 {
        self.estimate(self.keys.len())
    }

    pub(crate) const fn is_part(&self) -> bool {
        self.zeros > 0
    }

    /// The number of keys with this property; an estimate for a sample.
    pub(crate) fn number_of(&self, holds: impl Fn(&T) -> bool) -> u64 {
        self.estimate(self.keys.values().filter(|known| holds(known)).count())
    }

    /// All sampled values except that of one key.
    pub(crate) fn but(&self, one: &Key) -> impl Iterator<Item = &T> {
        let one = hash_of(one);
        let others = self.keys.iter().filter(move |(hash, _)| **hash != one);
        others.map(|(_, known)| known)
    }

    fn estimate(&self, kept: usize) -> u64 {
        (kept as u64) << self.zeros
    }
}

/// A hash that is equal in all runs.
pub(crate) fn hash_of(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}

/// The keys that stay when a full map is pruned, half of the most that it holds.
const KEPT: usize = 1_000;

/// Counts of keys, each with where the key came from. When the map is full, the rarer half of the keys goes.
#[derive(Debug, Default)]
pub(crate) struct KeyCounts {
    keys: HashMap<Key, KeyCount>,
    /// The most that a key without a count can have had.
    pruned: u64,
    /// How many keys were new, which orders keys of equal counts in each run alike.
    new: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct KeyCount {
    pub(crate) key: Key,
    /// Never too small.
    pub(crate) count: u64,
    /// How much too large the count may be.
    pub(crate) error: u64,
    pub(crate) source: KeySource,
    number: u64,
}

impl KeyCounts {
    /// Counts a key. Its source is asked for if the key is new.
    pub(crate) fn count(&mut self, key: &Key, source: impl FnOnce() -> KeySource) {
        if let Some(known) = self.keys.get_mut(key) {
            known.count += 1;
            return;
        }
        if self.keys.len() >= 2 * KEPT {
            let kept = self.first(KEPT + 1);
            // The largest that goes.
            self.pruned = kept[KEPT].count;
            let kept = kept.into_iter().take(KEPT);
            self.keys = kept.map(|key| (key.key.clone(), key)).collect();
        }
        self.new += 1;
        let new = KeyCount {
            key: key.clone(),
            count: self.pruned + 1,
            error: self.pruned,
            source: source(),
            number: self.new,
        };
        self.keys.insert(key.clone(), new);
    }

    /// The most frequent keys.
    pub(crate) fn first(&self, many: usize) -> Vec<KeyCount> {
        let mut keys: Vec<_> = self.keys.values().collect();
        keys.sort_unstable_by_key(|key| Reverse((key.count, key.number)));
        keys.into_iter().take(many).cloned().collect()
    }
}

/// The source of a rule's key.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeySource {
    /// The alternative of a `first_of`.
    pub(crate) alternative: Option<String>,
    pub(crate) stand_in: Option<StandIn>,
}

/// The key of the line, which stands in for a part that the log lacks.
#[derive(Debug, Clone)]
pub(crate) struct StandIn {
    /// The missing part, in the syntax of rule files.
    pub(crate) missing: String,
    pub(crate) key: Key,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_stay_in_a_flood_of_others() {
        let mut top = KeyCounts::default();
        for number in 0..100_000_u64 {
            top.count(&Key::from(1_000_000 + number), KeySource::default);
            if number % 50 == 0 {
                top.count(&Key::from(1_u64), KeySource::default);
            }
            if number % 100 == 0 {
                top.count(&Key::from(2_u64), KeySource::default);
            }
        }
        let first = top.first(2);
        let keys: Vec<_> = first.iter().map(|top| top.key.clone()).collect();
        assert_eq!(keys, [Key::from(1_u64), Key::from(2_u64)]);
        for (KeyCount { count, error, .. }, real) in first.iter().zip([2_000, 1_000]) {
            assert!(
                *count >= real && count - error <= real,
                "{count} less {error}"
            );
        }
        assert!(top.keys.len() <= 2 * KEPT);
    }
}
