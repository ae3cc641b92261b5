//! Layers around each other: what an inner one denies has been charged by the outer ones.

use testkit::{Probe, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{Global, Header, Key, Quota, RateLimitLayer};

/// How many of a client's requests pass after another one has sent 20, and what is left for
/// everybody.
fn passed_after_a_flood(each_is_outside: bool) -> (usize, Option<u64>) {
    let (each, _) = limiter(Quota::per_minute(3).named("each"));
    let (everybody, _) = limiter(Quota::per_minute(8).named("everybody"));
    let by_client = RateLimitLayer::new(each, Header::new("x-user"));
    let by_all = RateLimitLayer::new(everybody.clone(), Global);
    let sent = |user: &str, requests: usize| {
        let request = || get("/").header("x-user", user);
        let statuses = (0..requests).map(|_| {
            if each_is_outside {
                send(&by_client.layer(by_all.layer(Probe::default())), request()).status()
            } else {
                send(&by_all.layer(by_client.layer(Probe::default())), request()).status()
            }
        });
        statuses.filter(http::StatusCode::is_success).count()
    };
    assert_eq!(sent("alice", 20), 3);
    let left = everybody.peek(&Key::global(), 1).remaining();
    (sent("bob", 3), left)
}

#[test]
fn a_denial_outside_takes_nothing_from_everybody() {
    assert_eq!(passed_after_a_flood(true), (3, Some(5)));
}

/// This is what the order costs, not what anybody wants.
#[test]
fn a_denial_inside_has_taken_from_everybody() {
    assert_eq!(passed_after_a_flood(false), (0, Some(0)));
}

/// Quotas of one key need no order: one layer charges all of them or none.
#[test]
fn quotas_of_one_layer_are_charged_together_or_not_at_all() {
    let quotas = [
        Quota::per_minute(3).named("minute"),
        Quota::per_hour(8).named("hour"),
    ];
    let (both, _) = limiter(quotas);
    let service = RateLimitLayer::new(both.clone(), Global).layer(Probe::default());
    for _ in 0..20 {
        send(&service, get("/"));
    }
    let hour = both.peek(&Key::global(), 1);
    let left: Vec<_> = hour.quotas().map(|q| q.remaining()).collect();
    assert_eq!(left, [Some(0), Some(5)]);
}
