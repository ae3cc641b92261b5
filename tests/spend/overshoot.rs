//! How far streams go beyond their limit, beside limits that count afterwards or end responses.

use std::{
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use http::{Request, Response};
use http_body::Body;
use testkit::{
    limiter,
    llm::{
        StreamingBody,
        competing_streams::{LIMIT, STREAMS, TOKENS, Use, Way, frame_counts, frames},
    },
    now,
};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{Global, Key, Quota, RateLimitLayer};

const RESERVE: u64 = 1_024;
const STEP: u64 = 256;
const MINUTES: usize = 6;

fn show(name: &str, used: &Use) {
    let share = |tokens: u64| tokens as f64 / LIMIT as f64;
    println!(
        "{name}: worst minute {:.2} of the limit, all {MINUTES} minutes {:.2}, ended early {} of {}",
        share(used.worst_minute()),
        share(used.total()) / MINUTES as f64,
        used.ended_early,
        used.begun
    );
}

#[test]
fn overshoot_of_100_streams_is_below_the_bound_and_in_the_long_run_there_is_none() {
    let debt = LIMIT;
    let afterwards = Way::Afterwards.run(MINUTES);
    show("counted afterwards", &afterwards);
    let forgetting = Way::Reserving {
        reserve: RESERVE,
        debt: 0,
    }
    .run(MINUTES);
    show("reserve 1,024, what is owed forgotten", &forgetting);
    let used = Way::Reserving {
        reserve: RESERVE,
        debt,
    }
    .run(MINUTES);
    show("reserve 1,024, owing", &used);
    let exact = Way::Reserving {
        reserve: TOKENS,
        debt,
    }
    .run(MINUTES);
    show("reserve 2,000, owing", &exact);
    let ended = Way::Ending.run(MINUTES);
    show("reserve 1,024, ending", &ended);

    let bound = |reserve, debt| 2 * LIMIT + LIMIT + debt + STREAMS * (reserve + STEP);
    println!(
        "bound of a minute: {:.2}",
        bound(RESERVE, debt) as f64 / LIMIT as f64
    );
    assert!(used.worst_minute() <= bound(RESERVE, debt));
    assert!(used.worst_minute() <= 3 * LIMIT);
    assert!(exact.worst_minute() <= 2 * LIMIT);
    // Nothing is owed, and each frame is charged before it passes.
    assert!(ended.worst_minute() <= 2 * LIMIT);
    assert!(ended.ended_early > 0 && used.ended_early == 0);
    assert!(afterwards.worst_minute() > 4 * LIMIT);
    assert!(forgetting.total() > used.total());
    // The bucket at the start, its debt at the end, and what is open.
    let most = LIMIT * (MINUTES as u64 + 2) + STREAMS * (RESERVE + STEP);
    assert!(used.total() <= most);
}

#[test]
fn streams_that_start_at_once_owe_what_they_used_to_the_unit() {
    let (limiter, clock) = limiter(Quota::per_minute(LIMIT).debt(LIMIT));
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(frame_counts(false));
    let layer = layer.reserve(RESERVE).step(STEP);
    let used: u64 = {
        // No time passes, and each client has one response.
        let frames = frames();
        let mut service = layer.layer(service_fn(move |_: Request<()>| {
            let body = StreamingBody::new(frames.clone());
            async move { Ok::<_, std::io::Error>(Response::new(body)) }
        }));
        let mut cx = Context::from_waker(Waker::noop());
        let mut bodies: Vec<_> = (0..STREAMS)
            .map(|_| {
                assert!(service.poll_ready(&mut cx).is_ready());
                now(service.call(Request::new(()))).unwrap()
            })
            .filter(|response| response.status() == 200)
            .map(Response::into_body)
            .collect();
        let count = bodies.len() as u64;
        while !bodies.is_empty() {
            bodies.retain_mut(|body| {
                let _ = Pin::new(&mut *body).poll_frame(&mut cx);
                !body.is_end_stream()
            });
        }
        count * TOKENS
    };
    assert_eq!(used, 48 * TOKENS, "as many as reservations fit");
    let owed = used - LIMIT;
    let wait = limiter.peek(&Key::global(), 1).retry_after().unwrap();
    assert_eq!(
        wait,
        Duration::from_micros(1_200) * u32::try_from(owed + 1).unwrap()
    );
    clock.advance(wait);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(1));
}
