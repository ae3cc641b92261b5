//! The most that each key asks for in a second, in ten, in a minute and in an hour.
//!
//! Beyond a number of keys only those whose hash is below a threshold are kept, which falls as keys
//! come: those that stay are a fair sample, so shares and percentiles stay what they are.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

use tower_ratelimit::Key;

/// The windows, in seconds, and their names.
pub(super) const WINDOWS: [(u64, &str); 4] =
    [(1, "1 s"), (10, "10 s"), (60, "1 min"), (3_600, "1 h")];

/// Keys and what they asked for.
pub(super) struct Peaks {
    keys: HashMap<u64, KeyCounts, BuildHasherDefault<Identity>>,
    most: usize,
    /// Hashes with this many leading zeros are kept.
    zeros: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct KeyCounts {
    windows: [Window; 4],
    /// A bit for each candidate that limited the key.
    limited: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    number: u32,
    count: u32,
    peak: u32,
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

impl Peaks {
    pub(super) fn new(most: usize) -> Self {
        Self {
            keys: HashMap::default(),
            most: most.max(1),
            zeros: 0,
        }
    }

    /// Counts an attempt, which some candidates limited, unless its response does not count.
    pub(super) fn count(&mut self, key: &Key, at: u64, limited: u32, counts: bool) {
        let hash = hash_of(key);
        if hash.leading_zeros() < self.zeros {
            return;
        }
        let key = self.keys.entry(hash).or_default();
        key.limited |= limited;
        let seconds = at / 1_000_000;
        for (window, (length, _)) in key.windows.iter_mut().zip(WINDOWS) {
            let number = (seconds / length) as u32;
            if window.number != number {
                (window.number, window.count) = (number, 0);
            }
            window.count = window.count.saturating_add(u32::from(counts));
            window.peak = window.peak.max(window.count);
        }
        while self.keys.len() > self.most {
            self.zeros += 1;
            let zeros = self.zeros;
            self.keys.retain(|hash, _| hash.leading_zeros() >= zeros);
        }
    }

    /// How many keys there are; an estimate if it is a sample.
    pub(super) fn number(&self) -> u64 {
        (self.keys.len() as u64) << self.zeros
    }

    pub(super) fn is_sample(&self) -> bool {
        self.zeros > 0
    }

    /// How many keys the candidate limited; an estimate if it is a sample.
    pub(super) fn limited_by(&self, candidate: usize) -> u64 {
        let limited = self
            .keys
            .values()
            .filter(|key| key.limited >> candidate & 1 == 1);
        (limited.count() as u64) << self.zeros
    }

    /// The peaks of all keys in a window, sorted, but those of keys with no response that counts.
    pub(super) fn sorted(&self, window: usize) -> Vec<u32> {
        let mut peaks: Vec<u32> = self
            .keys
            .values()
            .map(|key| key.windows[window].peak)
            .filter(|peak| *peak > 0)
            .collect();
        peaks.sort_unstable();
        peaks
    }
}

/// The same in every run.
pub(super) fn hash_of(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_number_and_the_percentiles_of_all() {
        let (mut all, mut sample) = (Peaks::new(usize::MAX), Peaks::new(2_000));
        for round in 0..4_u64 {
            for number in 0..40_000_u64 {
                // A key in ten asks in each round.
                if round == 0 || number % 10 == 0 {
                    let key = Key::from(number);
                    all.count(
                        &key,
                        1_795_230_001_000_000 + round,
                        u32::from(number % 4 == 0),
                        true,
                    );
                    sample.count(
                        &key,
                        1_795_230_001_000_000 + round,
                        u32::from(number % 4 == 0),
                        true,
                    );
                }
            }
        }
        assert_eq!(
            (all.number(), all.limited_by(0), all.is_sample()),
            (40_000, 10_000, false)
        );
        assert!(sample.is_sample());
        assert!(
            (36_000..44_000).contains(&sample.number()),
            "{}",
            sample.number()
        );
        assert!(
            (8_500..11_500).contains(&sample.limited_by(0)),
            "{}",
            sample.limited_by(0)
        );
        let share = |peaks: Vec<u32>| {
            let often = peaks.iter().filter(|peak| **peak == 4).count();
            often as f64 / peaks.len() as f64
        };
        assert!((share(all.sorted(2)) - 0.1).abs() < 1e-9);
        assert!((share(sample.sorted(2)) - 0.1).abs() < 0.03);
    }
}
