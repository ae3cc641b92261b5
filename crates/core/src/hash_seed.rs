//! Keyed hashes, with seeds that a simulation repeats, and the hasher of keys that contain theirs.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher13;

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
