//! Requests that wait for limits with a key each: whose line they stand in, and whose places they take.

use std::time::Duration;

use http::Request;
use testkit::Probe;
use tokio::{task::JoinSet, time::Instant};
use tower::Layer;
use tower_ratelimit::{
    Global, Header, LocalLimiter, LocalStore, Quota, RateLimitLayer, limiter::JointLimiter,
};

use crate::waiting_lines::{Answer, TokioClock, joined, passed, send};

/// A limit that nobody reaches.
const MANY: u64 = 1_000_000;

/// Limits by address, by tenant and of everybody, so many of each a second, one at an instant.
fn layer(address: u64, tenant: u64, everybody: u64) -> RateLimitLayer<JointLimiter> {
    let clock = TokioClock(Instant::now());
    let store = LocalStore::builder().clock(clock).build().unwrap();
    let of = |name, limit| {
        let burst = if limit < MANY { 1 } else { limit };
        let quota = Quota::per_second(limit).burst(burst).named(name);
        LocalLimiter::builder(quota).build_in(&store).unwrap()
    };
    RateLimitLayer::all([
        of("address", address).by(Header::new("x-address")),
        of("tenant", tenant).by(Header::new("x-tenant")),
        of("everybody", everybody).by(Global),
    ])
}

fn from(address: &str, tenant: &str) -> Request<()> {
    let request = Request::get("/").header("x-address", address);
    request.header("x-tenant", tenant).body(()).unwrap()
}

fn at_once(answers: &[Answer]) -> usize {
    let denied = |(at, status, _): &&Answer| *at == 0 && *status == 429;
    answers.iter().filter(denied).count()
}

/// A client's address denies it, whatever tenant it names: that is one line, and not one for each
/// tenant.
#[tokio::test(start_paused = true)]
async fn a_denied_address_that_varies_its_tenant_leaves_room_for_others() {
    let service = layer(1, 10, MANY).wait(Duration::from_secs(5));
    let service = service.layer(Probe::default());
    let mut flood = JoinSet::new();
    for tenant in 0..1_100 {
        flood.spawn(send(&service, from("mallory", &format!("tenant {tenant}"))));
        tokio::task::yield_now().await;
    }
    let mut others = JoinSet::new();
    for address in ["ann", "bob"] {
        others.spawn(send(&service, from(address, "acme")));
        tokio::task::yield_now().await;
    }
    let others = joined(others).await;
    assert_eq!(passed(&others), [0, 100], "bob waits 0.1 s");
    let flood = joined(flood).await;
    assert_eq!(passed(&flood), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
    assert_eq!(at_once(&flood), 1_094);
}

/// A place counts at each key of the request, so that the many lines of the tenants hold no more of
/// one address than its share; what is the same for everybody is nobody's share.
#[tokio::test(start_paused = true)]
async fn a_place_counts_at_every_key_but_that_of_everybody() {
    let layer = layer(MANY, 1, MANY).wait(Duration::from_secs(5));
    let service = layer.max_waiting(80).layer(Probe::default());
    let mut first = JoinSet::new();
    for tenant in 0..40 {
        first.spawn(send(
            &service,
            from(&format!("{tenant}"), &format!("{tenant}")),
        ));
    }
    assert_eq!(passed(&joined(first).await), [0; 40]);
    let mut flood = JoinSet::new();
    for tenant in 0..20 {
        flood.spawn(send(&service, from("mallory", &format!("{tenant}"))));
        tokio::task::yield_now().await;
    }
    let mut others = JoinSet::new();
    for tenant in 20..40 {
        others.spawn(send(
            &service,
            from(&format!("{tenant}"), &format!("{tenant}")),
        ));
        tokio::task::yield_now().await;
    }
    let flood = joined(flood).await;
    assert_eq!(at_once(&flood), 10);
    assert_eq!(passed(&joined(others).await), [1_000; 20]);
}

/// Those that the limit of all holds up wait in its line, each in its share of the room.
#[tokio::test(start_paused = true)]
async fn the_line_of_everybody_is_as_long_as_the_room() {
    let layer = layer(MANY, MANY, 100).wait(Duration::from_secs(5));
    let service = layer.max_waiting(80).layer(Probe::default());
    let mut answers = JoinSet::new();
    for client in 0..100 {
        answers.spawn(send(
            &service,
            from(&format!("{client}"), &format!("{client}")),
        ));
        tokio::task::yield_now().await;
    }
    let answers = joined(answers).await;
    let expected: Vec<_> = (0..=80).map(|turn| turn * 10).collect();
    assert_eq!(passed(&answers), expected);
    assert_eq!(at_once(&answers), 19);
}

/// The head of one line that another limit denies leaves it, and joins that limit's line behind those who stand there. It
/// passes within the longest wait since it came, or is denied at once, and those behind it in its old line do not wait
/// for it.
#[tokio::test(start_paused = true)]
async fn a_head_that_another_limit_denies_joins_the_line_of_that_one_anew() {
    let moved = |at, status| (at, status, "ann", "big");
    let first = [(0, 200, "ann", "acme"), (1, 200, "x", "big")];
    let later = [
        (10, 200, "ann", "small"),
        (11, 200, "y", "big"),
        (21, 200, "z", "big"),
    ];
    let mut expected = [&first[..], &later[..], &[moved(31, 200)]].concat();
    assert_eq!(cast(4).await, expected);
    expected.pop();
    expected.insert(3, moved(10, 429));
    assert_eq!(cast(3).await, expected);
}

/// The tenth of a second in which each of some requests is answered, which wait for so many seconds.
async fn cast(longest: u64) -> Vec<(u64, u16, &'static str, &'static str)> {
    let service = layer(1, 1, MANY).wait(Duration::from_secs(longest));
    let service = service.layer(Probe::default());
    let mut cast = JoinSet::new();
    for (start, address, tenant) in [
        (0, "ann", "acme"),  // Passes: Ann has her next unit at 1 s.
        (0, "ann", "big"),   // The head of Ann's line.
        (0, "ann", "small"), // Behind it, and calls as soon as that has moved.
        (100, "x", "big"),   // Passes: the tenant has its next unit at 1.1 s.
        (100, "y", "big"),   // The head of the tenant's line.
        (100, "z", "big"),   // Behind it.
    ] {
        let service = service.clone();
        cast.spawn(async move {
            tokio::time::sleep(Duration::from_millis(start)).await;
            let (at, status, _) = send(&service, from(address, tenant)).await;
            (u64::try_from(at).unwrap() + start, status, address, tenant)
        });
        tokio::task::yield_now().await;
    }
    let mut answers = cast.join_all().await;
    answers.sort_unstable();
    let near = answers.into_iter();
    near.map(|(at, status, address, tenant)| (at / 100, status, address, tenant))
        .collect()
}
