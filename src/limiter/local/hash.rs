//! Keyed hashes of keys, which clients cannot predict.

use siphasher::sip::SipHasher13;

use crate::{hash_seed::keyed_hash, key::Key};

/// The hash of a key: its tag in a table, and the bits that choose its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyHash {
    /// The tag; never 0, the tag of an unused entry.
    pub(super) tag: u64,
    /// The bits that choose the two buckets of the key; may equal those of the tag.
    pub(super) bucket_bits: [u32; 2],
}

impl KeyHash {
    /// The hash with this tag, which has all bits of a key's hash except for one in 2^64.
    #[inline]
    pub(super) fn of_tag(tag: u64) -> Self {
        Self {
            tag: tag.max(1),
            bucket_bits: [tag as u32, (tag >> 32) as u32],
        }
    }

    #[inline]
    pub(super) fn buckets(self, count: usize) -> [usize; 2] {
        self.bucket_bits
            .map(|bits| ((u64::from(bits) * count as u64) >> 32) as usize)
    }

    /// The hash of the pair of this hash and another one. Both are keyed with a secret, so two pairs
    /// collide no more often than two keys.
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
/// SipHash, because clients send the bytes: with a predictable hash they could send keys that collide
/// in one bucket, or with another client's key.
#[derive(Debug, Clone)]
pub(super) struct KeyHasher(SipHasher13);

impl KeyHasher {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self(keyed_hash(seed))
    }

    /// The hasher with the [key](Self::key) of another one.
    pub(super) fn of_key((first, second): (u64, u64)) -> Self {
        Self(SipHasher13::new_with_keys(first, second))
    }

    pub(super) fn key(&self) -> (u64, u64) {
        self.0.keys()
    }

    #[inline]
    pub(super) fn hash(&self, key: &Key) -> KeyHash {
        self.hash_here(key.as_bytes())
    }

    /// The hash of the key with these [bytes](Key::as_bytes). Not inlined, so that only the hot path of a
    /// lone bucket has the hash inlined.
    #[inline(never)]
    pub(super) fn hash_bytes(&self, key: &[u8]) -> KeyHash {
        self.hash_here(key)
    }

    #[inline]
    fn hash_here(&self, key: &[u8]) -> KeyHash {
        KeyHash::of_tag(self.0.hash(key))
    }
}
