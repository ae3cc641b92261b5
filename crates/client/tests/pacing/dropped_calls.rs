//! Calls that are dropped: the table of the page `crates/client/docs/clients.md`, row by row.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};
use tower_ratelimit::{LocalLimiter, Quota, clock::TokioClock};
use tower_ratelimit_client::{Pacer, PacerLayer};

use super::{Server, URL, api, builder, millis, seconds, settle};

fn waiting(pacer: &Pacer) -> tokio::task::JoinHandle<()> {
    let pacer = pacer.clone();
    tokio::spawn(async move { drop(pacer.turn(&api(), 1).await.unwrap()) })
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_the_queue_costs_nothing() {
    let pacer = builder(Quota::per_second(1)).build().unwrap();
    drop(pacer.turn(&api(), 1).await.unwrap());
    let began = Instant::now();
    let tasks: Vec<_> = (0..8).map(|_| waiting(&pacer)).collect();
    settle().await;
    // All but the head and the last one.
    for task in &tasks[1..7] {
        task.abort();
    }
    settle().await;
    assert_eq!(pacer.stats(&api()).queued, 2);
    for task in [0, 7] {
        assert!(!tasks[task].is_finished());
    }
    let [head, .., last] = <[_; 8]>::try_from(tasks).unwrap();
    head.await.unwrap();
    assert_eq!(began.elapsed(), seconds(1));
    // None of the six has cost anything.
    last.await.unwrap();
    assert_eq!(began.elapsed(), seconds(2));
}

/// How long the next call waits after one that is sent, if the head between them is dropped.
async fn wait_behind_a_dropped_head(pacer: &Pacer) -> Duration {
    drop(pacer.turn(&api(), 1).await.unwrap());
    let began = Instant::now();
    let (head, next) = (waiting(pacer), waiting(pacer));
    sleep(millis(400)).await;
    head.abort();
    next.await.unwrap();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_as_head_costs_nothing() {
    let pacer = builder(Quota::per_second(1)).build().unwrap();
    assert_eq!(wait_behind_a_dropped_head(&pacer).await, seconds(1));
}

#[tokio::test(start_paused = true)]
async fn a_head_dropped_with_a_booked_slot_loses_the_slot() {
    let limiter =
        LocalLimiter::builder(Quota::per_second(1).leaky_bucket(9)).clock(TokioClock::new());
    let pacer = builder(limiter.build().unwrap()).build().unwrap();
    // One booked slot is lost, and no more.
    assert_eq!(wait_behind_a_dropped_head(&pacer).await, seconds(2));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_flight_stays_charged() {
    let pacer = builder(Quota::per_second(1)).build().unwrap();
    let turn = pacer.turn(&api(), 1).await.unwrap();
    assert_eq!(pacer.stats(&api()).in_flight, 1);
    let began = Instant::now();
    drop(turn);
    assert_eq!(pacer.stats(&api()).in_flight, 0);
    // It stays charged: the server may have it.
    waiting(&pacer).await.unwrap();
    assert_eq!(began.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_retry_sends_nothing() {
    let server = Server::scripted(&[(503, &[("retry-after", "5")])]);
    let pacer = builder(Quota::per_second(100)).build().unwrap();
    let client = PacerLayer::new(pacer.clone()).layer(server.clone());
    let request = http::Request::get(URL).body(String::new()).unwrap();
    let call = tokio::spawn(client.oneshot(request));
    sleep(seconds(1)).await;
    assert_eq!(server.requests(), 1);
    call.abort();
    sleep(seconds(60)).await;
    assert_eq!(server.requests(), 1);
    assert_eq!(
        (pacer.stats(&api()).queued, pacer.stats(&api()).in_flight),
        (0, 0)
    );
}
