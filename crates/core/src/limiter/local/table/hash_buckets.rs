//! The memory of the table: buckets of entries, each bucket on a cache line of its own.

use std::{num::NonZero, sync::OnceLock};

use super::sync::{AtomicU64, zeroed};
use crate::limiter::local::hash::KeyHash;

/// The entries of a bucket: four of 16 bytes are one cache line. Two in the model, because its
/// schedules grow with the square of the reads of a call.
pub(super) const WAYS: usize = if cfg!(all(test, check_model)) { 2 } else { 4 };

/// The numbers of a bucket: a tag and a state for each entry.
const NUMBERS: usize = 2 * WAYS;

/// Buckets that are allocated when they are needed. Zeros are unused entries. The operating system
/// provides zeroed memory page by page when it is touched, so a table takes memory only where it has keys;
/// an allocator that has memory of an earlier table zeroes it at once.
#[derive(Debug)]
pub(super) struct Buckets {
    memory: OnceLock<Memory>,
    count: usize,
}

/// All buckets in one slice of numbers.
#[derive(Debug)]
struct Memory {
    numbers: Box<[AtomicU64]>,
    /// The index of the first number that begins a cache line.
    first: usize,
}

/// One bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLine<'a>(&'a [AtomicU64; NUMBERS]);

/// One entry: the tag of its key, and the key's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    #[doc(hidden)]
    pub tag: &'a AtomicU64,
    pub(super) state: &'a AtomicU64,
}

impl Buckets {
    pub(super) const fn new(count: usize) -> Self {
        Self {
            memory: OnceLock::new(),
            count,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Allocates the buckets, unless they are. `None` if there is no memory, or no bucket.
    pub(super) fn made(&self) -> Option<&Self> {
        if self.memory.get().is_none() {
            let _other_was_first = self.memory.set(Memory::try_new(self.count)?);
        }
        Some(self)
    }

    /// The two buckets of a key; `None` if none are allocated.
    #[inline]
    pub(super) fn of_key(&self, key: KeyHash) -> Option<[CacheLine<'_>; 2]> {
        let memory = self.memory.get()?;
        // Not by `map`, which is not inlined.
        let [first, second] = key.buckets(self.count);
        Some([memory.line(first), memory.line(second)])
    }

    /// The bucket with this index, if they are allocated.
    pub(super) fn get(&self, bucket: usize) -> Option<CacheLine<'_>> {
        Some(self.memory.get()?.line(bucket))
    }

    /// All buckets; none if they are not allocated.
    pub(super) fn iter(&self) -> impl Iterator<Item = CacheLine<'_>> {
        (0..self.count).map_while(|bucket| self.get(bucket))
    }
}

impl Memory {
    fn try_new(buckets: usize) -> Option<Self> {
        let numbers = NonZero::new(buckets)?.get().checked_mul(NUMBERS)?;
        let numbers = zeroed(numbers.checked_add(NUMBERS)?)?;
        let line = size_of::<[AtomicU64; NUMBERS]>();
        let before = numbers.as_ptr().addr().next_multiple_of(line) - numbers.as_ptr().addr();
        Some(Self {
            first: before / size_of::<AtomicU64>(),
            numbers,
        })
    }

    /// # Panics
    ///
    /// If there are fewer buckets.
    #[inline]
    fn line(&self, bucket: usize) -> CacheLine<'_> {
        let line = self.numbers[self.first + bucket * NUMBERS..].first_chunk();
        CacheLine(line.expect("as many buckets"))
    }
}

impl<'a> CacheLine<'a> {
    #[inline]
    pub(super) fn entry(self, at: usize) -> Entry<'a> {
        Entry {
            tag: &self.0[2 * at],
            state: &self.0[2 * at + 1],
        }
    }

    #[inline]
    pub(super) fn entries(self) -> impl Iterator<Item = Entry<'a>> {
        (0..WAYS).map(move |at| self.entry(at))
    }
}

#[cfg(all(test, not(check_model)))]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_is_a_cache_line() {
        for count in [2, 3, 1_000] {
            let buckets = Buckets::new(count);
            assert!(buckets.iter().next().is_none());
            assert!(buckets.made().is_some());
            for bucket in buckets.iter() {
                assert_eq!(bucket.0.as_ptr().addr() % 64, 0);
            }
            assert_eq!(buckets.iter().count(), count);
        }
    }
}
