//! Keyed hashes, with seeds that a simulation repeats, and the hasher of keys that contain theirs.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher13;

use crate::key::Key;

/// A keyed hash that clients cannot predict, unless a seed is given.
///
/// SipHash, because the hashed values come from clients.
pub fn keyed_hash(seed: Option<u64>) -> SipHasher13 {
    match seed {
        Some(seed) => SipHasher13::new_with_keys(seed, !seed),
        // The standard library seeds it from the operating system's random source.
        None => {
            let random = RandomState::new();
            SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1))
        }
    }
}

/// The hasher of keys that contain their hash, which is computed once for several maps or uses.
#[derive(Debug, Default)]
pub struct KnownHash(u64);

impl Hasher for KnownHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is one number");
    }
}

/// The hash of a key: its tag in a table, and the bits that choose its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct KeyHash {
    /// The tag; never 0, the tag of an unused entry.
    pub tag: u64,
    /// The bits that choose the two buckets of the key, each with one half; may equal those of the tag. One number,
    /// so that a hash is passed in two registers.
    pub(super) bucket_bits: u64,
}

impl KeyHash {
    /// The hash with this tag, which has all bits of a key's hash except for one in 2^64.
    #[inline]
    pub(super) fn of_tag(tag: u64) -> Self {
        Self {
            tag: tag.max(1),
            bucket_bits: tag,
        }
    }

    #[inline]
    pub(super) fn buckets(self, count: usize) -> [usize; 2] {
        let place = |bits| ((u64::from(bits) * count as u64) >> 32) as usize;
        let [first, second] = self.halves();
        [place(first), place(second)]
    }

    #[inline]
    const fn halves(self) -> [u32; 2] {
        [self.bucket_bits as u32, (self.bucket_bits >> 32) as u32]
    }

    /// The hash of the pair of this hash and another one. Both are keyed with a secret, so two pairs
    /// collide no more often than two keys.
    #[inline]
    pub(super) const fn mixed_with(self, other: Self) -> Self {
        let tag = self.tag ^ other.tag;
        Self {
            tag: if tag == 0 { 1 } else { tag },
            bucket_bits: self.bucket_bits ^ other.bucket_bits,
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        let [first, second] = self.halves().map(u128::from);
        (u128::from(self.tag) << 64 | first << 32 | second).to_le_bytes()
    }
}

/// SipHash-1-3, by words, under a key that is drawn at random for each limiter.
///
/// SipHash, because clients send the bytes: with a predictable hash they could send keys that collide
/// in one bucket, or with another client's key.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct KeyHasher(SipState);

#[doc(hidden)]
impl KeyHasher {
    pub fn new(seed: Option<u64>) -> Self {
        Self::of_key(keyed_hash(seed).keys())
    }

    /// The hasher with the [key](Self::key) of another one.
    pub(super) const fn of_key((first, second): (u64, u64)) -> Self {
        let [a, b, c, d] = START;
        Self(SipState([first ^ a, second ^ b, first ^ c, second ^ d]))
    }

    pub(super) const fn key(&self) -> (u64, u64) {
        let SipState([a, b, ..]) = self.0;
        (a ^ START[0], b ^ START[1])
    }

    #[inline(always)]
    pub fn hash(&self, key: &Key) -> KeyHash {
        match key.words() {
            Some((words, last)) => self.hash_words(words, last),
            None => self.hash_bytes(key.as_bytes()),
        }
    }

    /// The hash of the key with these [bytes](Key::as_bytes).
    #[inline(never)]
    pub fn hash_bytes(&self, key: &[u8]) -> KeyHash {
        let (words, rest) = key.as_chunks();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = key.len() as u8;
        self.hash_words(words, u64::from_le_bytes(last))
    }

    #[inline(always)]
    fn hash_words(&self, words: &[[u8; 8]], last: u64) -> KeyHash {
        let mut state = self.0;
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        state.absorb(last);
        KeyHash::of_tag(state.finish())
    }
}

/// The four numbers of a SipHash, before its key: "somepseudorandomlygeneratedbytes".
const START: [u64; 4] = [
    0x736f_6d65_7073_6575,
    0x646f_7261_6e64_6f6d,
    0x6c79_6765_6e65_7261,
    0x7465_6462_7974_6573,
];

#[derive(Debug, Clone, Copy)]
struct SipState([u64; 4]);

impl SipState {
    #[inline]
    const fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    #[inline]
    const fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        self.round();
        self.round();
        self.round();
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }

    #[inline]
    const fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use siphasher::sip::SipHasher13;

    use super::*;

    #[test]
    fn hash_by_words_is_siphash_of_the_bytes() {
        let (hasher, bytewise) = (KeyHasher::of_key((7, 8)), SipHasher13::new_with_keys(7, 8));
        assert_eq!(hasher.key(), (7, 8));
        let bytes: Vec<u8> = (0..600_u32).map(|at| (at * 37) as u8).collect();
        let sizes = (0..bytes.len()).map(|length| Key::bytes(&bytes[..length]));
        let addresses = ["203.0.113.7", "2001:db8::1"].map(|text| {
            let address: IpAddr = text.parse().expect("an address");
            Key::from(address)
        });
        let limits: Vec<Key> = (0..40).map(Key::from).collect();
        let others = [Key::global(), Key::tuple(limits)];
        for key in sizes.chain(addresses).chain(others) {
            let tag = bytewise.hash(key.as_bytes());
            assert_eq!(hasher.hash(&key), KeyHash::of_tag(tag), "{key:?}");
            assert_eq!(hasher.hash_bytes(key.as_bytes()), KeyHash::of_tag(tag));
        }
    }
}
