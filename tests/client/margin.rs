//! The margin: requests that leave evenly and arrive squeezed together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{
    Key, LocalLimiter, Quota, TokioClock,
    client::{Pacer, PacerBuilder},
};

use super::{api, millis};

/// How many of 600 requests a server refuses, whose delays on the way differ by up to `delay`.
async fn refused(quota: Quota, delay: Duration, margin: Duration) -> usize {
    let clock = TokioClock::new();
    let server = LocalLimiter::builder(quota).clock(clock).build().unwrap();
    let builder: PacerBuilder<_, _> = Pacer::builder(quota);
    let pacer = builder
        .clock(clock)
        .margin(margin)
        .max_wait(Duration::from_secs(3_600))
        .learn(tower_ratelimit::client::Learn::nothing())
        .build()
        .unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..600_u64)
        .map(|n| {
            let (pacer, server, refused) = (pacer.clone(), server.clone(), Arc::clone(&refused));
            tokio::spawn(async move {
                let turn = pacer.turn(&api(), 1).await.unwrap();
                // The same delays each time, as far apart as they may be.
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
async fn without_it_the_server_refuses_some() {
    assert!(refused(Quota::per_second(100).burst(5), millis(100), Duration::ZERO).await > 0);
    assert!(refused(Quota::per_second(10).burst(1), millis(100), Duration::ZERO).await > 0);
}

#[tokio::test(start_paused = true)]
async fn with_it_none() {
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
