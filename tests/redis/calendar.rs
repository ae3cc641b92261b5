//! Quotas that follow the calendar, whose windows the node sends and Redis chooses by its own clock.

use std::sync::{Arc, Mutex};

use testkit::{charge_vectors::utc, needs};
use tower_ratelimit::{
    Key, OnFailure, Quota, RedisLimiter,
    clock::{Clock as _, OsClock, Timestamp},
    shared::{Reply, SharedLimiter, Store, StoreCall},
    store::{StoreError, StoreErrorKind},
};

use crate::{
    scripts::{
        GENERAL,
        script_write_recorder::{Calls, Recorded},
    },
    servers::Server,
    strict_mode_only::{leased_mode_refuses_a_change, only_strict_mode_counts, patient_store},
};

const MONTH: Quota = Quota::per_month(5).in_zone("Europe/Berlin");

/// A server whose clock is not the node's.
pub(crate) struct Apart {
    redis: Mutex<Calls>,
    script: Recorded,
    node: Timestamp,
    pub(crate) server: Mutex<Timestamp>,
}

impl Store for Apart {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        let mut arguments = call.script_arguments(Some(self.node));
        arguments[0] = self.server.lock().unwrap().as_micros().to_string();
        let mut redis = self.redis.lock().unwrap();
        let mut outcome = redis.call(&self.script, &[key.to_owned()], &arguments);
        let reply = outcome.replies.remove(0);
        if reply.starts_with(b"-RATELIMIT_CLOCK ") {
            let detail = String::from_utf8(reply).unwrap();
            return Err(StoreError::new(StoreErrorKind::ClockApart, detail));
        }
        Ok(Reply::from_bytes(reply))
    }
}

/// A limiter on a node whose clock stands, and the server that it calls.
fn limiter(server: &Server, quota: Quota, node: &str) -> (Arc<Apart>, SharedLimiter<Arc<Apart>>) {
    let store = Arc::new(Apart {
        redis: Mutex::new(Calls::new(server)),
        script: Recorded::new(GENERAL),
        node: utc(node),
        server: Mutex::new(utc(node)),
    });
    let limiter = SharedLimiter::builder(quota)
        .remember_denials(false)
        .on_failure(OnFailure::deny())
        .build_on(Arc::clone(&store));
    (store, limiter.unwrap())
}

#[tokio::test]
async fn the_server_s_clock_chooses_the_month() {
    needs!(redis);
    let server = Server::start().await;
    let (store, limiter) = limiter(&server, MONTH, "2026-03-15T12:00:00Z");
    let key = Key::from("alice");
    let decided = async |at: &str| {
        *store.server.lock().unwrap() = utc(at);
        let decision = limiter.acquire(&key, 5).await.unwrap();
        let wait = decision.binding().effective_window().unwrap();
        (decision.is_allowed(), utc(at).saturating_add(wait))
    };
    // A month before the node's, the node's, and the month after.
    let ends = [
        ("2026-02-10T00:00:00Z", "2026-02-28T23:00:00Z"),
        ("2026-03-01T00:00:00Z", "2026-03-31T22:00:00Z"),
        ("2026-04-30T21:59:59Z", "2026-04-30T22:00:00Z"),
    ];
    for (at, end) in ends {
        assert_eq!(decided(at).await, (true, utc(end)), "{at}");
        assert_eq!(decided(at).await, (false, utc(end)), "{at}");
    }
}

#[tokio::test]
async fn a_clock_more_than_a_window_away_is_a_named_error() {
    needs!(redis);
    let server = Server::start().await;
    let (store, limiter) = limiter(&server, MONTH, "2026-03-15T12:00:00Z");
    let key = Key::from("alice");
    for at in ["2026-01-31T22:59:59Z", "2026-04-30T22:00:00Z"] {
        *store.server.lock().unwrap() = utc(at);
        let error = limiter.acquire(&key, 1).await.expect_err(at);
        let store_error = std::error::Error::source(&error).expect("the store's error");
        assert!(
            store_error.to_string().contains("clock_apart"),
            "{store_error}"
        );
    }
}

/// The clock of a real server, and the whole way to it.
#[tokio::test]
async fn redis_decides_by_its_own_clock() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient_store(&server);
    let quota = Quota::per_year(2).in_zone("Pacific/Apia");
    let limiter = RedisLimiter::builder(quota).build(&store).unwrap();
    let key = Key::from("alice");
    let charged = limiter.acquire(&key, 2).await.unwrap();
    assert!(charged.is_allowed());
    let denied = limiter.acquire(&key, 1).await.unwrap();
    let wait = denied.retry_after().unwrap();
    // Samoa's years end at 11:00 UTC.
    let end = OsClock::new().now().saturating_add(wait).as_micros() / 1_000_000;
    let seconds = end % 86_400;
    assert!(
        (11 * 3_600 - 60..=11 * 3_600 + 60).contains(&seconds),
        "{seconds}"
    );
    let refunded = limiter
        .refund(&key, 1, Some(charged.receipt()))
        .await
        .unwrap();
    assert_eq!(refunded.remaining(), Some(1));
}

#[tokio::test]
async fn modes_other_than_strict_are_refused_or_stay_strict() {
    needs!(redis);
    let server = Server::start().await;
    let plain = Quota::per_day(5).fixed_window();
    only_strict_mode_counts(&server, Quota::per_week(5), "calendar").await;
    leased_mode_refuses_a_change(&server, plain, Quota::per_day(5).in_zone("UTC")).await;
}
