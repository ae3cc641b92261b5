//! Seeds of keyed hashes and of random names, which a simulation repeats.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

/// A keyed hash that clients cannot predict, unless a seed is given.
///
/// SipHash, because the hashed values come from clients.
pub(crate) fn keyed_hash(seed: Option<u64>) -> SipHasher13 {
    match seed {
        Some(seed) => SipHasher13::new_with_keys(seed, !seed),
        // The standard library seeds it from the operating system's random source.
        None => {
            let random = RandomState::new();
            SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1))
        }
    }
}
