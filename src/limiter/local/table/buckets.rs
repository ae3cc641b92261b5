//! The memory of the table: buckets of entries, each bucket on a cache line of its own.

use super::sync::{AtomicU64, zeroed};

/// Entries in a bucket: four of 16 bytes are one cache line. In the model it is two, because the
/// schedules grow with the square of what a call reads.
pub(super) const WAYS: usize = if cfg!(all(test, check_model)) { 2 } else { 4 };

/// Numbers in a bucket: a tag and a state for each entry.
const NUMBERS: usize = 2 * WAYS;

/// All buckets, as one row of numbers that are zero at first: an entry that was never used. Zeroed
/// memory is given by the operating system page by page as it is touched, so a table takes room
/// where it has keys.
#[derive(Debug)]
pub(super) struct Buckets {
    numbers: Box<[AtomicU64]>,
    /// Where the first cache line begins.
    first: usize,
    count: usize,
}

/// One bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket<'a>(&'a [AtomicU64; NUMBERS]);

/// One entry: whose it is, and what is remembered of that key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) tag: &'a AtomicU64,
    pub(super) state: &'a AtomicU64,
}

impl Buckets {
    /// `None` where there is no room for so many.
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
    /// When there are not so many.
    #[inline]
    pub(super) fn get(&self, bucket: usize) -> Bucket<'_> {
        let (buckets, _) = self.numbers[self.first..].as_chunks();
        Bucket(&buckets[bucket])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Bucket<'_>> {
        (0..self.count).map(|bucket| self.get(bucket))
    }
}

impl<'a> Bucket<'a> {
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
