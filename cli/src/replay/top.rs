//! The keys that are limited most, in constant memory.

use std::{cmp::Reverse, collections::HashMap};

use tower_ratelimit::Key;

/// The keys that stay when a full map is pruned, half of the most that it holds.
const KEPT: usize = 1_000;

/// Counts of keys, each with a label. When the map is full, the rarer half of the keys goes.
#[derive(Debug, Default)]
pub(super) struct KeyCounts<L = ()> {
    keys: HashMap<Key, KeyCount<L>>,
    /// The most that a key without a count can have had.
    pruned: u64,
    /// How many keys were new, which orders keys of equal counts in each run alike.
    new: u64,
}

#[derive(Debug, Clone)]
pub(super) struct KeyCount<L = ()> {
    pub(super) key: Key,
    /// Never too small.
    pub(super) count: u64,
    /// How much too large the count may be.
    pub(super) error: u64,
    pub(super) label: L,
    number: u64,
}

impl<L: Clone> KeyCounts<L> {
    /// Counts a key. The label is made if the key is new.
    pub(super) fn count(&mut self, key: &Key, label: impl FnOnce() -> L) {
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
            label: label(),
            number: self.new,
        };
        self.keys.insert(key.clone(), new);
    }

    /// The most frequent keys.
    pub(super) fn first(&self, many: usize) -> Vec<KeyCount<L>> {
        let mut keys: Vec<_> = self.keys.values().collect();
        keys.sort_unstable_by_key(|key| Reverse((key.count, key.number)));
        keys.into_iter().take(many).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_stay_in_a_flood_of_others() {
        let mut top: KeyCounts = KeyCounts::default();
        for number in 0..100_000_u64 {
            top.count(&Key::from(1_000_000 + number), || ());
            if number % 50 == 0 {
                top.count(&Key::from(1_u64), || ());
            }
            if number % 100 == 0 {
                top.count(&Key::from(2_u64), || ());
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
