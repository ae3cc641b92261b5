//! A store in memory goes by the wall, as a database does.

use std::time::Duration;

use testkit::wall_clock_jumps::BothClocks;
use tower_ratelimit::{
    Key, Quota,
    shared::{MemoryStore, SharedLimiter},
};

#[tokio::test]
async fn a_store_in_memory_counts_by_the_wall() {
    let clock = BothClocks::at(1_767_225_600);
    let builder = SharedLimiter::builder(Quota::per_day(2).fixed_window());
    let builder = builder.remember_denials(false);
    let store = MemoryStore::with_clock(clock.clone());
    let limiter = builder.build_on(store).unwrap();
    let alice = Key::from("alice");
    assert!(limiter.acquire(&alice, 2).await.unwrap().is_allowed());
    for (hours, wait) in [(20, 4), (-8, 12), (8, 4), (4, 0)] {
        clock.step(hours);
        let decided = limiter.acquire(&alice, 1).await.unwrap();
        let wait = Duration::from_secs(wait * 3_600);
        assert_eq!(decided.retry_after(), Some(wait), "{hours} h");
    }
}
