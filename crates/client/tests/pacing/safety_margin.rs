//! The margin: requests that leave evenly and arrive closer together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{Key, LocalLimiter, Quota, clock::TokioClock};
use tower_ratelimit_client::{Pacer, PacerBuilder, PacerErrorKind};

use super::{api, millis};

/// How many of 600 requests a server refuses when their delays differ by up to `delay`.
async fn refused(quota: Quota, delay: Duration, margin: Duration) -> usize {
    let clock = TokioClock::new();
    let server = LocalLimiter::builder(quota).clock(clock).build().unwrap();
    let builder: PacerBuilder = Pacer::builder(quota);
    let pacer = builder
        .clock(clock)
        .margin(margin)
        .max_wait(Duration::from_secs(3_600))
        .learn(tower_ratelimit_client::Learn::nothing())
        .build()
        .unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..600_u64)
        .map(|n| {
            let (pacer, server, refused) = (pacer.clone(), server.clone(), Arc::clone(&refused));
            tokio::spawn(async move {
                let turn = pacer.turn(&api(), 1).await.unwrap();
                // Equal delays in every run, as far apart as possible.
                let mixed = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let share = (mixed >> 32) as f64 / f64::from(u32::MAX);
                sleep(delay.mul_f64(share)).await;
                let denied = server.acquire(&Key::global(), 1).is_denied();
                refused.fetch_add(usize::from(denied), Ordering::SeqCst);
                drop(turn);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    refused.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn without_a_margin_the_server_refuses_some() {
    assert!(refused(Quota::per_second(100).burst(5), millis(100), Duration::ZERO).await > 0);
    assert!(refused(Quota::per_second(10).burst(1), millis(100), Duration::ZERO).await > 0);
}

#[tokio::test(start_paused = true)]
async fn with_a_margin_the_server_refuses_none() {
    for (quota, delay) in [
        (Quota::per_second(100).burst(5), 100),
        (Quota::per_second(100).burst(50), 100),
        (Quota::per_second(10).burst(1), 100),
        (Quota::per_second(10).burst(5), 250),
        (Quota::per_second(1_000), 20),
        (Quota::per_minute(600).burst(2), 1_000),
        (Quota::per_second(5).burst(3), 30),
    ] {
        let delay = millis(delay);
        assert_eq!(refused(quota, delay, delay).await, 0, "{quota} {delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_may_be_the_burst_less_the_margin() {
    let second = Quota::per_second(10);
    for (quota, margin, most, message) in [
        (second, 0, 10, "a quota of 10 in 1 s"),
        (
            second,
            100,
            9,
            "a quota of 9 in 900 ms (the declared one less a margin of 100 ms)",
        ),
        (
            second.burst(20),
            250,
            17,
            "a quota of 17 in 1700 ms (the declared one less a margin of 250 ms)",
        ),
        // The remaining burst is too small: the rate is lower, and no two units are sent together.
        (
            second.burst(5),
            500,
            1,
            "a quota of 1 in 120 ms (the declared one less a margin of 500 ms)",
        ),
        // Other algorithms have no margin.
        (second.sliding_log(), 100, 10, "a quota of 10 in 1 s"),
        (second.leaky_bucket(5), 100, 6, "a quota of 6 in 600 ms"),
    ] {
        let pacer = Pacer::builder(quota).clock(TokioClock::new());
        let pacer = pacer.margin(millis(margin)).build().unwrap();
        let error = pacer.turn(&api(), most + 1).await.unwrap_err();
        assert_eq!(error.kind(), PacerErrorKind::CannotFit, "{quota}");
        assert_eq!(error.retry_after(), None);
        assert_eq!(
            error.to_string(),
            format!(
                "a cost of {} never fits {message}, for https://api.example.com:443",
                most + 1
            )
        );
        // The refused request cost nothing.
        drop(pacer.turn(&api(), most).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_the_user_has_no_margin() {
    let limiter = LocalLimiter::builder(Quota::per_second(10)).clock(TokioClock::new());
    let pacer = Pacer::builder(limiter.build().unwrap()).margin(millis(500));
    let pacer = pacer.clock(TokioClock::new()).build().unwrap();
    drop(pacer.turn(&api(), 10).await.unwrap());
    let error = pacer.turn(&api(), 11).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a cost of 11 never fits a quota of 10 in 1 s, for https://api.example.com:443"
    );
}
