//! Counters of the most frequent keys, by the space-saving algorithm.

use crate::{decision::Label, key::Key};

/// The most keys that have a counter.
const MOST: usize = 256;

/// The number of tags that are compared at once.
const PART: usize = 32;

/// A key, a policy, and the number of denials of the key by the policy. Denied requests that passed anyway are counted
/// apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    pub(super) key: Key,
    pub(super) policy: Label,
    pub(super) passed_anyway: bool,
    pub(super) count: u64,
    pub(super) error: u64,
}

/// A part of a key's hash, which finds its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u32);

impl Tag {
    pub(super) const fn new(hash: u64) -> Self {
        Self(hash as u32)
    }
}

/// At most [`MOST`] counters. A key without a counter takes over the smallest one, with its count: no
/// count is too small, and the count taken over is the error.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyCounters {
    /// The tag of each counter; in a vector of their own because a search scans all of them.
    tags: Vec<Tag>,
    counters: Vec<TopKey>,
    /// The index at which the search for the smallest counter continues.
    next: usize,
    /// A lower bound of all counts.
    least: u64,
    total: u64,
}

impl KeyCounters {
    pub(super) fn count(&mut self, tag: Tag, key: &Key, policy: &Label, passed_anyway: bool) {
        self.total += 1;
        if let Some(place) = self.place(tag, (key, policy, passed_anyway)) {
            self.counters[place].count += 1;
            return;
        }
        let counter = TopKey {
            key: key.clone(),
            policy: policy.clone(),
            passed_anyway,
            count: 1,
            error: 0,
        };
        if self.counters.len() < MOST {
            self.tags.push(tag);
            self.counters.push(counter);
            return;
        }
        let place = self.smallest();
        let error = self.counters[place].count;
        self.tags[place] = tag;
        self.counters[place] = TopKey {
            count: error + 1,
            error,
            ..counter
        };
    }

    /// The sum of all denials counted.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn keys(&self) -> &[TopKey] {
        &self.counters
    }

    /// The count of a key and its error. Without a counter, both are the most that the key may have
    /// been denied.
    pub(super) fn most_of(&self, key: &TopKey) -> (u64, u64) {
        let mut counters = self.counters.iter();
        match counters.find(|counter| counter.is_same(key)) {
            Some(counter) => (counter.count, counter.error),
            None if self.counters.len() < MOST => (0, 0),
            None => (self.smallest_count(), self.smallest_count()),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn place(&self, tag: Tag, of: (&Key, &Label, bool)) -> Option<usize> {
        for (part, tags) in self.tags.chunks(PART).enumerate() {
            // Without an early exit the compiler compares several tags at once.
            if !tags.iter().fold(false, |found, own| found | (*own == tag)) {
                continue;
            }
            let places = (part * PART..).zip(tags);
            let mut places = places.filter(|(_, own)| **own == tag);
            let is_it = |place: usize| {
                let counter = &self.counters[place];
                counter.is_of(of)
            };
            if let Some((place, _)) = places.find(|(place, _)| is_it(*place)) {
                return Some(place);
            }
        }
        None
    }

    /// The index of a smallest counter. Counters only grow, so a search need not return to counters
    /// that it passed until none of this size is left.
    fn smallest(&mut self) -> usize {
        loop {
            while self.next < self.counters.len() {
                let place = self.next;
                if self.counters[place].count <= self.least {
                    return place;
                }
                self.next += 1;
            }
            self.next = 0;
            self.least = self.smallest_count();
        }
    }

    fn smallest_count(&self) -> u64 {
        let counts = self.counters.iter().map(|counter| counter.count);
        counts.min().unwrap_or_default()
    }
}

impl TopKey {
    /// The key. Its `Debug` hides the content.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The name of the policy that denied it.
    pub fn policy(&self) -> &str {
        self.policy.as_str()
    }

    /// Whether the denied requests passed anyway, in shadow mode or as overflow.
    pub const fn passed_anyway(&self) -> bool {
        self.passed_anyway
    }

    /// The number of denials, without skipped ones. The true number may be less, by at most the
    /// [error](Self::error).
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The largest possible error of the [count](Self::count), which is never too small: the denials of
    /// keys that had the counter before.
    pub const fn error(&self) -> u64 {
        self.error
    }

    /// Adds a count and its error.
    pub(super) const fn add(&mut self, (count, error): (u64, u64)) {
        self.count += count;
        self.error += error;
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is_of((&other.key, &other.policy, other.passed_anyway))
    }

    fn is_of(&self, (key, policy, passed_anyway): (&Key, &Label, bool)) -> bool {
        self.passed_anyway == passed_anyway && self.key == *key && self.policy == *policy
    }
}
