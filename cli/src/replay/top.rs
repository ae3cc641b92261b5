//! The keys that are limited most, in constant memory: Space-Saving (Metwally, Agrawal and El
//! Abbadi, 2005).

use std::collections::{BTreeMap, HashMap};

use tower_ratelimit::Key;

/// The number of counters.
const COUNTERS: usize = 1_000;

/// Frequent keys and their counts, each with a label.
#[derive(Debug, Default)]
pub(super) struct TopKeys<L = ()> {
    counts: HashMap<Key, Counter<L>>,
    /// The keys ordered by their counts and numbers.
    order: BTreeMap<(u64, u64), Key>,
    next: u64,
}

/// A frequent key.
#[derive(Debug, Clone)]
pub(super) struct TopKey<L = ()> {
    pub(super) key: Key,
    pub(super) count: u64,
    /// How much of the count may be another key's.
    pub(super) error: u64,
    pub(super) label: L,
}

#[derive(Debug, Clone)]
struct Counter<L> {
    count: u64,
    /// How much of the count may be another key's.
    error: u64,
    number: u64,
    label: L,
}

impl<L: Clone> TopKeys<L> {
    /// Counts a key. The label is made if the key has no counter.
    pub(super) fn count(&mut self, key: &Key, label: impl FnOnce() -> L) {
        let counter = match self.counts.get(key) {
            Some(counter) => {
                self.order.remove(&(counter.count, counter.number));
                Counter {
                    count: counter.count + 1,
                    ..counter.clone()
                }
            }
            None => self.new_counter(label()),
        };
        self.order
            .insert((counter.count, counter.number), key.clone());
        self.counts.insert(key.clone(), counter);
    }

    /// A new counter, which replaces the least one if all are in use.
    fn new_counter(&mut self, label: L) -> Counter<L> {
        self.next += 1;
        let mut error = 0;
        if self.counts.len() >= COUNTERS
            && let Some(((least, _), key)) = self.order.pop_first()
        {
            self.counts.remove(&key);
            error = least;
        }
        Counter {
            count: error + 1,
            error,
            number: self.next,
            label,
        }
    }

    /// The most frequent keys.
    pub(super) fn first(&self, many: usize) -> Vec<TopKey<L>> {
        let order = self.order.iter().rev().take(many);
        let first = order.map(|((count, _), key)| {
            let Counter { error, label, .. } = &self.counts[key];
            TopKey {
                key: key.clone(),
                count: *count,
                error: *error,
                label: label.clone(),
            }
        });
        first.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_stay_in_a_flood_of_others() {
        let mut top: TopKeys = TopKeys::default();
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
        for (TopKey { count, error, .. }, real) in first.iter().zip([2_000, 1_000]) {
            assert!(
                *count >= real && count - error <= real,
                "{count} less {error}"
            );
        }
        assert_eq!(top.counts.len(), COUNTERS);
        assert_eq!(top.order.len(), COUNTERS);
    }
}
