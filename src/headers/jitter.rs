use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A whole number of microseconds from 0 to `most`, each as likely as any other.
///
/// The keyed hash of a counter: std has no other source of random numbers, and this one costs a
/// denial no more than a lookup.
pub(super) fn draw(most: Duration) -> Duration {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static DRAWS: AtomicU64 = AtomicU64::new(0);

    let random = HASHER.hash_one(DRAWS.fetch_add(1, Ordering::Relaxed));
    let steps = most.as_micros().min(u128::from(u64::MAX)) + 1;
    let micros = (u128::from(random) * steps) >> u64::BITS;
    Duration::from_micros(micros as u64)
}
