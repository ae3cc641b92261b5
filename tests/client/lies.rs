//! Servers that lie, and more of them than can be remembered.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tower_ratelimit::{
    Clock, Quota, TokioClock,
    client::{Advice, Destination, Pacer, PacerErrorKind},
};

use super::{api, builder, head, seconds};

#[tokio::test(start_paused = true)]
async fn none_hangs_or_grows_the_client() {
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
        let turn = pacer.turn(&api(), 1).await.unwrap();
        if let Advice::RetryAfter(wait) = turn.learn(status, &headers) {
            assert!(wait <= seconds(3_600), "{headers:?}");
        }
        let stats = pacer.stats(&api());
        assert!(stats.paused_for <= Some(seconds(3_600)), "{headers:?}");
        assert!(
            stats.left.is_none_or(|(_, window)| window <= seconds(600)),
            "{headers:?}"
        );
        // Whatever was said, the next request is answered at once or after what it may wait.
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
async fn a_million_destinations_take_no_more_than_a_few() {
    let most = 16;
    let pacer = builder(Quota::per_second(1_000))
        .max_destinations(most)
        .build()
        .unwrap();
    let kept = pacer.turn(&api(), 1).await.unwrap();
    let paused: Destination = "https://paused.example.com".parse().unwrap();
    pacer.pause(&paused, seconds(3_000));
    // A million takes half a minute without optimization.
    let destinations = std::env::var("DESTINATIONS").map_or(50_000, |n| n.parse().unwrap());
    for n in 0..destinations {
        let n: u64 = n;
        drop(pacer.turn(&api().with_key(n), 1).await.unwrap());
    }
    let stats = pacer.stats(&api());
    assert_eq!((stats.destinations, stats.in_flight), (most, 1));
    // The one in use and the paused one were not given up.
    assert!(pacer.stats(&paused).paused_for.is_some());
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn destinations_in_use_are_not_given_up() {
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
fn a_clock_that_steps_back_makes_nobody_wait_for_ever() {
    let clock = tower_ratelimit::ManualClock::new();
    let pacer = Pacer::learning_builder()
        .clock(clock.clone())
        .build()
        .unwrap();
    let turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
    let (status, headers) = head(429, &[("retry-after", "10")]);
    turn.learn(status, &headers);
    clock.step_back(seconds(86_400));
    let _ = clock.now();
    let stats = pacer.stats(&api());
    assert!(
        stats.paused_for <= Some(Duration::from_secs(3_600)),
        "{stats:?}"
    );
}
