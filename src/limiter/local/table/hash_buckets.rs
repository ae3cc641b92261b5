//! The memory of the table: buckets of entries, each bucket on a cache line of its own.

use super::sync::{AtomicU64, zeroed};

/// The entries of a bucket: four of 16 bytes are one cache line. Two in the model, because its
/// schedules grow with the square of the reads of a call.
pub(super) const WAYS: usize = if cfg!(all(test, check_model)) { 2 } else { 4 };

/// The numbers of a bucket: a tag and a state for each entry.
const NUMBERS: usize = 2 * WAYS;

/// All buckets, in one slice of numbers. Zeros are unused entries. The operating system provides zeroed
/// memory page by page when it is touched, so a table takes memory only where it has keys.
#[derive(Debug)]
pub(super) struct Buckets {
    numbers: Box<[AtomicU64]>,
    /// The index of the first number that begins a cache line.
    first: usize,
    count: usize,
}

/// One bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLine<'a>(&'a [AtomicU64; NUMBERS]);

/// One entry: the tag of its key, and the key's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) tag: &'a AtomicU64,
    pub(super) state: &'a AtomicU64,
}

impl Buckets {
    /// `None` if there is no memory.
    pub(super) fn try_new(count: usize) -> Option<Self> {
        let numbers = count.checked_mul(NUMBERS)?.checked_add(NUMBERS)?;
        let numbers = zeroed(numbers)?;
        let line = size_of::<[AtomicU64; NUMBERS]>();
        let before = numbers.as_ptr().addr().next_multiple_of(line) - numbers.as_ptr().addr();
        Some(Self {
            first: before / size_of::<AtomicU64>(),
            numbers,
            count,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// # Panics
    ///
    /// If there are fewer buckets.
    #[inline]
    pub(super) fn get(&self, bucket: usize) -> CacheLine<'_> {
        let line = self.numbers[self.first + bucket * NUMBERS..].first_chunk();
        CacheLine(line.expect("as many buckets"))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = CacheLine<'_>> {
        (0..self.count).map(|bucket| self.get(bucket))
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
            let buckets = Buckets::try_new(count).expect("some memory");
            for bucket in buckets.iter() {
                assert_eq!(bucket.0.as_ptr().addr() % 64, 0);
            }
            assert_eq!(buckets.iter().count(), count);
        }
    }
}
