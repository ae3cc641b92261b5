//! Servers whose responses are malformed, and more destinations than a pacer keeps.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tower::{Layer, ServiceExt};
use tower_ratelimit::{Key, Quota, clock::TokioClock};
use tower_ratelimit_client::{Advice, Destination, Pacer, PacerErrorKind, PacerLayer};

use super::{Server, URL, api, builder, head, response, seconds};

#[tokio::test(start_paused = true)]
async fn no_malformed_response_hangs_or_grows_the_client() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    let mut policies = head(200, &[]).1;
    for n in 0..10_000 {
        let item = format!("\"p{n}\";r=0;t=999999999999999");
        policies.append("ratelimit", HeaderValue::try_from(item).unwrap());
    }
    let lies = [
        head(429, &[("retry-after", "1000000000000000")]),
        head(429, &[("retry-after", "99999999999999999999999999")]),
        head(429, &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]),
        head(429, &[("retry-after", "0")]),
        head(
            200,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "0")],
        ),
        head(
            200,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "999999999999"),
            ],
        ),
        head(
            200,
            &[
                ("x-ratelimit-remaining", "9"),
                ("x-ratelimit-reset", "18446744073709551615"),
            ],
        ),
        head(
            200,
            &[
                ("ratelimit", "\"a\";r=0;t=999999999999999"),
                ("ratelimit-policy", "\"a\";q=1;w=999999999999999"),
            ],
        ),
        head(
            200,
            &[
                ("ratelimit", "\"a\";r=0;t=1"),
                ("ratelimit-policy", "\"a\";q=0;w=1"),
            ],
        ),
        head(
            200,
            &[
                ("content-type", "application/grpc"),
                ("grpc-status", "8"),
                ("grpc-retry-pushback-ms", "2147483647"),
            ],
        ),
        (StatusCode::OK, policies),
    ];
    for (status, headers) in lies {
        pacer.resume(&api());
        let mut turn = pacer.turn(&api(), 1).await.unwrap();
        if let Advice::RetryAfter(wait) = turn.learn(status, &headers) {
            assert!(wait <= seconds(3_600), "{headers:?}");
        }
        let stats = pacer.stats(&api());
        assert!(stats.paused_for <= Some(seconds(3_600)), "{headers:?}");
        assert!(
            stats.left.is_none_or(|(_, window)| window <= seconds(600)),
            "{headers:?}"
        );
        // After any response, the next request is sent at once or after a bounded wait.
        let answer = tokio::time::timeout(seconds(31), pacer.turn(&api(), 1)).await;
        if let Err(error) = answer.expect("it hangs") {
            let kind = error.kind();
            assert!(matches!(
                kind,
                PacerErrorKind::Paused | PacerErrorKind::WaitTooLong
            ));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_thousand_destinations_take_no_more_than_a_few() {
    let most = 16;
    let pacer = builder(Quota::per_second(1_000))
        .max_destinations(most)
        .build()
        .unwrap();
    let kept = pacer.turn(&api(), 1).await.unwrap();
    let paused: Destination = "https://paused.example.com".parse().unwrap();
    pacer.pause(&paused, seconds(3_000));
    for n in 0..200_000_u64 {
        drop(pacer.turn(&api().with_key(n), 1).await.unwrap());
    }
    let stats = pacer.stats(&api());
    assert_eq!((stats.destinations, stats.in_flight), (most, 1));
    // The destination in use and the paused one were not evicted.
    assert!(pacer.stats(&paused).paused_for.is_some());
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn destinations_in_use_are_not_evicted() {
    let pacer = builder(Quota::per_second(1_000))
        .max_destinations(3)
        .build()
        .unwrap();
    let mut used = Vec::new();
    for n in 0..3_u64 {
        used.push(pacer.turn(&api().with_key(n), 1).await.unwrap());
    }
    let error = pacer.turn(&api(), 1).await.unwrap_err();
    assert_eq!(error.kind(), PacerErrorKind::TooManyDestinations);
    used.pop();
    drop(pacer.turn(&api(), 1).await.unwrap());
}

#[test]
fn a_clock_that_steps_back_extends_no_wait() {
    let fields = |line| [("ratelimit", line), ("ratelimit-policy", "\"a\";q=1;w=9")];
    // The response, the requests after it, and how long it holds the next request back.
    for (status, lines, sent_after, longest) in [
        (429, [("retry-after", "10"), ("x", "y")], seconds(0), 10_500),
        (200, fields("\"a\";r=0;t=10"), seconds(0), 10_000),
        // The time of a unit by the policy, and the second of slow start. Then the window is full
        // again.
        (200, fields("\"a\";r=0;t=10"), seconds(10), 10_000),
        (
            200,
            [("ratelimit", "\"a\";r=0;t=10"), ("x", "y")],
            seconds(10),
            1_000,
        ),
    ] {
        let clock = tower_ratelimit::clock::ManualClock::new();
        let pacer = Pacer::learning_builder().clock(clock.clone());
        let pacer = pacer.max_wait(Duration::ZERO).build().unwrap();
        let turn = || testkit::now(pacer.turn(&api(), 1));
        let (status, headers) = head(status, &lines);
        turn().unwrap().learn(status, &headers);
        if !sent_after.is_zero() {
            clock.advance(sent_after);
            drop(turn().unwrap());
        }
        assert!(turn().is_err(), "{lines:?}");
        clock.step_back(seconds(86_400));
        let stats = pacer.stats(&api());
        assert!(stats.paused_for <= Some(seconds(10)), "{stats:?}");
        assert!(stats.left.is_none_or(|(_, window)| window <= seconds(10)));
        assert!(turn().is_err(), "{lines:?}");
        clock.advance(Duration::from_millis(longest));
        let answer = turn();
        assert!(answer.is_ok(), "{lines:?} {answer:?}");
    }
}

#[test]
fn a_clock_that_steps_back_ends_the_spreading() {
    let clock = tower_ratelimit::clock::ManualClock::new();
    let pacer = Pacer::learning_builder().clock(clock.clone());
    let pacer = pacer.max_wait(Duration::ZERO).build().unwrap();
    let turn = || testkit::now(pacer.turn(&api(), 1));
    let learn = |status, lines: &[_]| {
        let (status, headers) = head(status, lines);
        turn().unwrap().learn(status, &headers);
    };
    learn(429, &[("retry-after", "0")]);
    clock.advance(seconds(1));
    clock.step_back(seconds(86_400));
    assert!(turn().is_err());
    clock.advance(seconds(2));
    learn(200, &[]);
    // A refusal of more than a minute ago is over.
    clock.advance(seconds(60));
    learn(200, &[("ratelimit", "\"a\";r=9;t=10")]);
    drop(turn().unwrap());
    drop(turn().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_refills_the_retry_budget() {
    let clock = tower_ratelimit::clock::ManualClock::new();
    let pacer = Pacer::builder(Quota::per_second(1_000)).clock(clock.clone());
    let pacer = pacer.build().unwrap();
    let layer = PacerLayer::new(pacer.clone());
    let server = Server::new(|_, _| Ok(response(503, &[])));
    let attempts = async || {
        let before = server.requests();
        let request = http::Request::get(URL).body(String::new()).unwrap();
        let client = layer.layer(server.clone());
        client.oneshot(request).await.unwrap();
        server.requests() - before
    };
    while attempts().await > 1 {}
    clock.step_back(seconds(86_400));
    // The limiter waits for a full burst after it has seen the step.
    let _ = pacer
        .limiter()
        .unwrap()
        .acquire(&Key::from(api().as_str()), 1);
    clock.advance(seconds(3));
    assert_eq!(attempts().await, 3);
}
