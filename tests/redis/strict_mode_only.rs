//! Quotas that strict mode alone counts, since their window depends on the store's clock.

use std::time::Duration;

use tower_ratelimit::{Key, Quota, RedisLimiter, RedisStore, shared::Mode};

use crate::servers::Server;

/// A store whose calls have time enough on a busy machine.
pub(crate) fn patient_store(server: &Server) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    store.connect(&server.url()).unwrap()
}

/// Eventual mode refuses the quota with this word, and leased mode counts it without leases.
pub(crate) async fn only_strict_mode_counts(server: &Server, quota: Quota, word: &str) {
    let store = patient_store(server);
    let builder = |mode| RedisLimiter::builder(quota).mode(mode).build(&store);
    let error = builder(Mode::eventual(Duration::from_secs(1)).ahead(2)).expect_err("eventual");
    assert!(error.to_string().contains(word), "{error}");
    let leased = builder(Mode::leased()).unwrap();
    let alice = Key::from("alice");
    assert!(leased.acquire(&alice, 1).await.unwrap().is_allowed());
    // Never below the largest limit of a day.
    let most = quota.limit();
    assert!(leased.acquire(&alice, most).await.unwrap().is_denied());
    assert_eq!(leased.mode_stats().granted, 0);
}

/// A leased quota cannot become one that only strict mode counts.
pub(crate) async fn leased_mode_refuses_a_change(server: &Server, leased: Quota, other: Quota) {
    let store = patient_store(server);
    let builder = RedisLimiter::builder(leased.named("a")).mode(Mode::leased());
    let change = builder.build(&store).unwrap().set_quota("a", other);
    assert!(change.is_err(), "{change:?}");
}
