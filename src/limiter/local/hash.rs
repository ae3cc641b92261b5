//! Hashes of keys, which clients cannot predict.

use siphasher::sip::SipHasher13;

use crate::{key::Key, seed::keyed_hash};

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

    /// The hash of the pair of this and another one. Both are made with a key that no client knows,
    /// so two pairs are taken for one another no more often than two keys are.
    #[inline]
    pub(super) const fn mixed_with(self, other: Self) -> Self {
        let tag = self.tag ^ other.tag;
        let [first, second] = self.bucket_bits;
        Self {
            tag: if tag == 0 { 1 } else { tag },
            bucket_bits: [first ^ other.bucket_bits[0], second ^ other.bucket_bits[1]],
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        let [first, second] = self.bucket_bits.map(u128::from);
        (u128::from(self.tag) << 64 | first << 32 | second).to_le_bytes()
    }
}

/// A 64-bit hash under a key that is drawn at random for each limiter.
///
/// SipHash, because the bytes come from clients: with a hash that can be predicted they could send
/// keys that meet in one bucket, or that pass for another client's.
#[derive(Debug, Clone)]
pub(super) struct KeyHasher(SipHasher13);

impl KeyHasher {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self(keyed_hash(seed))
    }

    #[inline]
    pub(super) fn hash(&self, key: &Key) -> KeyHash {
        self.hash_here(key.as_bytes())
    }

    /// The hash of the key with these [bytes](Key::as_bytes). Apart, so that the way of a lone
    /// bucket is the only one that has the hash within it.
    #[inline(never)]
    pub(super) fn hash_bytes(&self, key: &[u8]) -> KeyHash {
        self.hash_here(key)
    }

    #[inline]
    fn hash_here(&self, key: &[u8]) -> KeyHash {
        let hash = self.0.hash(key);
        KeyHash {
            tag: hash.max(1),
            bucket_bits: [hash as u32, (hash >> 32) as u32],
        }
    }
}
