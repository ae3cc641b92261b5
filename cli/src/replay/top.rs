//! The keys that are limited most, in constant memory: Space-Saving (Metwally, Agrawal and El Abbadi,
//! 2005).

use std::collections::{BTreeMap, HashMap};

use tower_ratelimit::Key;

/// Counters that are kept.
const COUNTERS: usize = 1_000;

/// Keys and how often they came.
#[derive(Debug, Default)]
pub(super) struct TopKeys {
    counts: HashMap<Key, Counter>,
    /// The keys in the order of their counts and numbers.
    order: BTreeMap<(u64, u64), Key>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    count: u64,
    /// How much of the count may be another key's.
    error: u64,
    number: u64,
}

impl TopKeys {
    pub(super) fn count(&mut self, key: &Key) {
        let counter = match self.counts.get(key) {
            Some(counter) => {
                self.order.remove(&(counter.count, counter.number));
                Counter {
                    count: counter.count + 1,
                    ..*counter
                }
            }
            None => self.new_counter(),
        };
        self.order
            .insert((counter.count, counter.number), key.clone());
        self.counts.insert(key.clone(), counter);
    }

    /// The counter of the key that came least often, if all are in use.
    fn new_counter(&mut self) -> Counter {
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
        }
    }

    /// The first of them: the key, its count, and how much of that may be another's.
    pub(super) fn first(&self, many: usize) -> Vec<(Key, u64, u64)> {
        let order = self.order.iter().rev().take(many);
        order
            .map(|((count, _), key)| (key.clone(), *count, self.counts[key].error))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_stay_in_a_flood_of_others() {
        let mut top = TopKeys::default();
        for number in 0..100_000_u64 {
            top.count(&Key::from(1_000_000 + number));
            if number % 50 == 0 {
                top.count(&Key::from(1_u64));
            }
            if number % 100 == 0 {
                top.count(&Key::from(2_u64));
            }
        }
        let first = top.first(2);
        let keys: Vec<_> = first.iter().map(|(key, ..)| key.clone()).collect();
        assert_eq!(keys, [Key::from(1_u64), Key::from(2_u64)]);
        for ((_, count, error), real) in first.iter().zip([2_000, 1_000]) {
            assert!(
                *count >= real && count - error <= real,
                "{count} less {error}"
            );
        }
        assert_eq!(top.counts.len(), COUNTERS);
        assert_eq!(top.order.len(), COUNTERS);
    }
}
