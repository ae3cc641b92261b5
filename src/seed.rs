//! Seeds: the keys of hashes and the names that are drawn at random, or repeated in a simulation.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

/// A keyed hash that nobody outside can tell, unless a seed is given.
///
/// SipHash, because what is hashed comes from clients.
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
