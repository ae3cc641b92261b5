//! Hashes of keys, which clients cannot predict.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

use crate::key::Key;

/// Where a key lives in a table, and by which tag it is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyHash {
    /// Never 0, the tag of an entry that was never used.
    pub(super) tag: u64,
    /// Random bits that choose the two buckets in which the key can live; they may be the tag's.
    pub(super) bucket_bits: [u32; 2],
}

impl KeyHash {
    /// The two of `count` buckets in which the key can live.
    #[inline]
    pub(super) fn buckets(self, count: usize) -> [usize; 2] {
        self.bucket_bits
            .map(|bits| ((u64::from(bits) * count as u64) >> 32) as usize)
    }
}

/// A 64-bit hash under a key that is drawn at random for each limiter.
///
/// SipHash, because the bytes come from clients: with a hash that can be predicted they could send
/// keys that meet in one bucket, or that pass for another client's.
#[derive(Debug)]
pub(super) struct KeyHasher(SipHasher13);

impl KeyHasher {
    pub(super) fn new() -> Self {
        // The standard library seeds it from the operating system's random source.
        let random = RandomState::new();
        Self(SipHasher13::new_with_keys(
            random.hash_one(0),
            random.hash_one(1),
        ))
    }

    #[inline]
    pub(super) fn hash(&self, key: &Key) -> KeyHash {
        let hash = self.0.hash(key.as_bytes());
        KeyHash {
            tag: hash.max(1),
            bucket_bits: [hash as u32, (hash >> 32) as u32],
        }
    }
}
