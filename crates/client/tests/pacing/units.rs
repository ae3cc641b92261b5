//! Turns that cost several units: fields of providers, declared limits of each unit, and settlements.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, response};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use testkit::{child_processes::eventually, fuzz::random::config, needs, servers};
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    OnFailure, Quota, RedisLimiter, RedisStore,
    clock::TokioClock,
    spend::{SpendReader, Tokens, llm::Llm},
};
use tower_ratelimit_client::{
    Advice, Pacer, PacerErrorKind, PacerEvent, PacerLayer, UnitLimit, Units,
};

use super::{Server, URL, api, head, millis, seconds};

fn learning() -> Pacer {
    let builder = Pacer::learning_builder().clock(TokioClock::new()).seed(7);
    builder.max_wait(seconds(7_200)).build().unwrap()
}

fn declared(limits: impl IntoIterator<Item = UnitLimit>) -> Pacer {
    let builder = Pacer::all_builder(limits).clock(TokioClock::new()).seed(7);
    builder
        .margin(millis(0))
        .max_wait(seconds(50))
        .build()
        .unwrap()
}

/// The fields of a response, sent at second 1,700,000,000.
fn fields(lines: &[(&str, &str)]) -> (StatusCode, HeaderMap) {
    let date = ("date", "Tue, 14 Nov 2023 22:13:20 GMT");
    head(200, &[&[date], lines].concat())
}

/// The milliseconds until a turn.
async fn wait_for(pacer: &Pacer, units: &[Units]) -> u128 {
    let began = Instant::now();
    let turn = pacer.turn_of(&api(), units.iter().copied()).await;
    drop(turn.unwrap());
    began.elapsed().as_millis()
}

/// A pacer that has used this many tokens, and got these fields.
async fn after(tokens: u64, lines: &[(&str, &str)]) -> Pacer {
    let pacer = learning();
    let mut turn = pacer
        .turn_of(&api(), [Units::tokens(tokens)])
        .await
        .unwrap();
    let (status, headers) = fields(lines);
    assert_eq!(turn.learn(status, &headers), Advice::Done);
    pacer
}

#[tokio::test(start_paused = true)]
async fn units_come_back_evenly_until_the_reset() {
    let fields = |remaining, reset| {
        [
            ("x-ratelimit-limit-tokens", "160000"),
            ("x-ratelimit-remaining-tokens", remaining),
            ("x-ratelimit-reset-tokens", reset),
        ]
    };
    // All but 24 are left, and these return in 10 ms at most: a rounded 9 ms. The margin is 100 ms.
    let pacer = after(24, &fields("159976", "9ms")).await;
    assert_eq!(wait_for(&pacer, &[Units::tokens(159_976)]).await, 0);
    let pacer = after(24, &fields("159976", "9ms")).await;
    let wait = wait_for(&pacer, &[Units::tokens(160_000)]).await;
    assert!((109..=112).contains(&wait), "{wait}");
    // A thousand of a used up quota return in 2.25 s, not in six minutes.
    let pacer = after(160_000, &fields("0", "6m0s")).await;
    let wait = wait_for(&pacer, &[Units::tokens(1_000)]).await;
    assert!((2_350..=2_352).contains(&wait), "{wait}");
    // A cost above the limit waits for all of it.
    let pacer = after(160_000, &fields("0", "6m0s")).await;
    let wait = wait_for(&pacer, &[Units::tokens(200_000)]).await;
    assert!((360_100..=360_102).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn each_unit_of_anthropic_has_its_own_limit() {
    let own = [Units::input_tokens(600), Units::output_tokens(60)];
    let pacer = learning();
    let mut turn = pacer.turn_of(&api(), own).await.unwrap();
    let (status, headers) = fields(&[
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:21Z"),
        ("anthropic-ratelimit-input-tokens-limit", "600"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        (
            "anthropic-ratelimit-input-tokens-reset",
            "2023-11-14T22:14:19Z",
        ),
        ("anthropic-ratelimit-output-tokens-limit", "80"),
        ("anthropic-ratelimit-output-tokens-remaining", "80"),
        (
            "anthropic-ratelimit-output-tokens-reset",
            "2023-11-14T22:13:20Z",
        ),
    ]);
    turn.learn(status, &headers);
    let mut used = Tokens::output(60);
    used.input = 600;
    turn.spend(&used);
    assert_eq!(wait_for(&pacer, &[Units::output_tokens(80)]).await, 0);
    // The reset is rounded: 600 come back in 60 s at most.
    let wait = wait_for(&pacer, &[Units::input_tokens(100)]).await;
    assert!((10_100..=10_102).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_binds_only_requests_that_bring_its_unit() {
    let lines = [
        ("ratelimit", "\"t\";r=0;t=30, \"d\";r=2;t=20"),
        (
            "ratelimit-policy",
            "\"t\";q=100;qu=\"tokens\";w=30, \"d\";q=10;w=60",
        ),
    ];
    let pacer = after(5, &lines).await;
    // Requests, by the policy without a unit.
    assert_eq!(wait_for(&pacer, &[]).await, 0);
    assert_eq!(wait_for(&pacer, &[Units::of("content-bytes", 9)]).await, 0);
    assert_eq!(wait_for(&pacer, &[Units::requests(1)]).await, 20_000);
    let wait = wait_for(&pacer, &[Units::tokens(1)]).await;
    assert_eq!(wait, 10_000, "of the 30 s since the response");
}

#[tokio::test(start_paused = true)]
async fn numbers_that_are_unknown_restrict_nothing() {
    for lines in [
        [
            ("x-ratelimit-limit-tokens", "-1"),
            ("x-ratelimit-remaining-tokens", "-1"),
            ("x-ratelimit-reset-tokens", "-1"),
        ],
        [
            ("x-ratelimit-limit-tokens", "100"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "soon"),
        ],
    ] {
        let pacer = after(5, &lines).await;
        assert_eq!(wait_for(&pacer, &[Units::tokens(1_000)]).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_one_limit_denies_takes_nothing_from_the_others() {
    let pacer = declared([
        UnitLimit::requests(Quota::per_minute(10)),
        UnitLimit::tokens(Quota::per_minute(100)),
    ]);
    let all = [Units::tokens(100)];
    assert_eq!(wait_for(&pacer, &all).await, 0);
    for _ in 0..20 {
        let denied = pacer.turn_of(&api(), all).await.unwrap_err();
        assert_eq!(denied.kind(), PacerErrorKind::WaitTooLong);
    }
    for _ in 0..9 {
        assert_eq!(wait_for(&pacer, &[]).await, 0);
    }
    assert_eq!(wait_for(&pacer, &[]).await, 6_000);
    let never = pacer
        .turn_of(&api(), [Units::tokens(101)])
        .await
        .unwrap_err();
    assert_eq!(
        never.to_string(),
        "a cost of 101 never fits a quota of 100 in 60 s, for https://api.example.com:443"
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_is_settled_by_what_it_used() {
    let pacer = declared([
        UnitLimit::requests(Quota::per_minute(10)),
        UnitLimit::tokens(Quota::per_minute(100)),
        UnitLimit::output_tokens(Quota::per_minute(100)),
    ]);
    let own = [Units::tokens(50), Units::output_tokens(100)];
    let mut turn = pacer.turn_of(&api(), own).await.unwrap();
    let (status, headers) = head(200, &[]);
    turn.learn(status, &headers);
    turn.spend(&Tokens::output(10));
    // The declared maximum stays charged where the server charges it.
    assert_eq!(wait_for(&pacer, &[Units::tokens(50)]).await, 0);
    assert_eq!(wait_for(&pacer, &[Units::tokens(1)]).await, 600);
    let settled = [Units::tokens(1).settled(), Units::output_tokens(90)];
    assert_eq!(wait_for(&pacer, &settled).await, 600);
}

#[tokio::test]
async fn a_limit_that_is_not_settled_is_reported_though_another_one_is() {
    needs!(redis);
    let (server, mut other) = (
        servers::Server::start().await,
        servers::Server::start().await,
    );
    let limit = |server: &servers::Server, name| {
        let store = RedisStore::builder().deadline(seconds(2));
        let store = store.connect(&server.url()).unwrap();
        let limiter = RedisLimiter::builder(Quota::per_hour(100).named(name));
        let limiter = limiter.on_failure(OnFailure::deny());
        limiter.build(&store).unwrap()
    };
    let limits = [
        UnitLimit::requests(limit(&server, "requests")),
        UnitLimit::tokens(limit(&other, "tokens")),
    ];
    let unsettled = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&unsettled);
    let pacer = Pacer::all_builder(limits).observer(move |event| {
        if matches!(event, PacerEvent::Unsettled) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let pacer = pacer.build().unwrap();
    let own = [Units::tokens(50).settled()];
    let mut turn = pacer.turn_of(&api(), own).await.unwrap();
    let (status, headers) = head(200, &[]);
    turn.learn(status, &headers);
    other.kill9();
    turn.spend(&Tokens::output(10));
    eventually("a report", async || {
        (unsettled.load(Ordering::Relaxed) == 1).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_that_is_charged_as_it_comes_is_taken_from_each_report() {
    let lines = |remaining| {
        fields(&[
            ("anthropic-ratelimit-output-tokens-limit", "1000"),
            ("anthropic-ratelimit-output-tokens-remaining", remaining),
            (
                "anthropic-ratelimit-output-tokens-reset",
                "2023-11-14T22:13:55Z",
            ),
        ])
    };
    let pacer = learning();
    let mut first = pacer
        .turn_of(&api(), [Units::output_tokens(600)])
        .await
        .unwrap();
    let (status, headers) = lines("1000");
    first.learn(status, &headers);
    first.spend(&Tokens::output(600));
    let mut streams = pacer
        .turn_of(&api(), [Units::output_tokens(300)])
        .await
        .unwrap();
    let (status, headers) = lines("400");
    streams.learn(status, &headers);
    // 100 of 400 are left until the stream ends with 50 of its 300.
    let waiting = async { wait_for(&pacer, &[Units::output_tokens(350)]).await };
    let end = async {
        tokio::time::sleep(seconds(2)).await;
        streams.spend(&Tokens::output(50));
    };
    let (wait, ()) = tokio::join!(waiting, end);
    assert_eq!(wait, 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_client_settles_by_the_bodies_of_responses() {
    let usage = r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":20,"completion_tokens":10,"total_tokens":30}}"#;
    let none = r#"{"choices":[{"message":{"content":"hi"}}]}"#;
    // 30 of 100 were used; without a usage all 100 stay charged.
    for (body, wait) in [(usage, 0), (none, 42_000)] {
        let server = service_fn(move |_: Request<String>| async move {
            let response = Response::builder().header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
        });
        let pacer = declared([UnitLimit::tokens(Quota::per_minute(100))]);
        let client = PacerLayer::new(pacer.clone())
            .units(|_| [Units::tokens(100).settled()])
            .spending(Llm::any())
            .layer(server);
        let request = Request::post(URL).body(String::new()).unwrap();
        let response = client.oneshot(request).await.unwrap();
        let read = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, body);
        assert_eq!(wait_for(&pacer, &[Units::tokens(70)]).await, wait);
        assert_eq!(wait_for(&pacer, &[Units::tokens(30)]).await, 18_000);
    }
}

/// Panics in each frame, and at the end.
struct Broken;

impl SpendReader for Broken {
    fn data(&mut self, _: &[u8], _: &mut Tokens) {
        panic!("a frame")
    }

    fn end(&mut self, _: &mut Tokens) {
        panic!("the end")
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_panics_while_a_panic_unwinds_ends_no_process() {
    let server = service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hi"))))
    });
    let pacer = declared([UnitLimit::tokens(Quota::per_minute(100))]);
    let client = PacerLayer::new(pacer.clone())
        .units(|_| [Units::tokens(100).settled()])
        .spending(|_: &response::Parts| Some(Broken))
        .layer(server);
    let request = Request::post(URL).body(String::new()).unwrap();
    let body = client.oneshot(request).await.unwrap().into_body();
    let read = tokio::spawn(async move { drop(body.collect().await) });
    assert!(read.await.unwrap_err().is_panic());
    // Nobody knows what was used, so all stays charged.
    assert_eq!(wait_for(&pacer, &[Units::tokens(70)]).await, 42_000);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_waits_for_the_tokens_that_it_lacks() {
    let pacer = learning();
    let mut turn = pacer.turn_of(&api(), [Units::tokens(500)]).await.unwrap();
    let (status, headers) = head(
        429,
        &[
            ("x-ratelimit-limit-requests", "100"),
            ("x-ratelimit-remaining-requests", "90"),
            ("x-ratelimit-reset-requests", "6s"),
            ("x-ratelimit-limit-tokens", "1000"),
            ("x-ratelimit-remaining-tokens", "400"),
            ("x-ratelimit-reset-tokens", "36s"),
        ],
    );
    let Advice::RetryAfter(wait) = turn.learn(status, &headers) else {
        panic!("no refusal");
    };
    assert!((millis(6_000)..=millis(6_001)).contains(&wait), "{wait:?}");
}

/// The requests that a server of these answers got from a call that may be retried.
async fn requests(answers: &'static [(u16, &'static [(&'static str, &'static str)])]) -> usize {
    let server = Server::scripted(answers);
    let client = PacerLayer::new(learning()).layer(server.clone());
    let request = Request::get(URL).body(String::new()).unwrap();
    client.oneshot(request).await.unwrap();
    server.requests()
}

#[tokio::test(start_paused = true)]
async fn a_server_decides_about_retries() {
    assert_eq!(requests(&[(429, &[("x-should-retry", "false")])]).await, 1);
    assert_eq!(requests(&[(503, &[("x-should-retry", "false")])]).await, 1);
    assert_eq!(requests(&[(429, &[("x-should-retry", "maybe")])]).await, 2);
    assert_eq!(requests(&[(500, &[])]).await, 1);
    assert_eq!(requests(&[(500, &[("x-should-retry", "true")])]).await, 2);
    // A success is no failure, whatever its field contains.
    assert_eq!(requests(&[(200, &[("x-should-retry", "true")])]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_unavailable() {
    assert_eq!(requests(&[(529, &[])]).await, 2);
    let pacer = learning();
    let mut turn = pacer.turn(&api(), 1).await.unwrap();
    let (status, headers) = head(529, &[("retry-after-ms", "1500.5")]);
    let advice = turn.learn(status, &headers);
    let wait = std::time::Duration::from_micros(1_500_500);
    assert_eq!(advice, Advice::RetryAfter(wait));
}

const NAMES: [&str; 13] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "ratelimit",
    "ratelimit-policy",
    "retry-after-ms",
    "x-should-retry",
];

const FRAGMENTS: [&str; 24] = [
    "0",
    "7",
    "100",
    "160000",
    "18446744073709551615",
    "1.5",
    "6m0s",
    "12ms",
    "1h2m3.5s",
    "9",
    "ns",
    "d",
    "-1",
    "true",
    "false",
    "2023-11-14T22:13:20Z",
    "9999-12-31T23:59:59Z",
    "\"a\";r=0;t=30",
    "\"a\";q=9;w=60",
    ";qu=\"tokens\"",
    ";w=0",
    ", ",
    "",
    "e",
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_field_panics_or_waits_forever(
        values in prop::collection::vec(
            prop::collection::vec(prop::sample::select(&FRAGMENTS[..]), 0..3).prop_map(|parts| parts.concat()),
            NAMES.len(),
        ),
        status in prop::sample::select(vec![200_u16, 429, 503, 529]),
        cost in prop_oneof![0..1_000_u64, Just(u64::MAX)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let pacer = learning();
            let units = [Units::tokens(cost), Units::requests(2)];
            let lines: Vec<_> = NAMES.into_iter().zip(values.iter().map(String::as_str)).collect();
            for _ in 0..2 {
                // A pause is an hour at most, and a window ten minutes.
                let turn = timeout(seconds(7_200), pacer.turn_of(&api(), units)).await;
                let mut turn = turn.expect("a wait of more than two hours").unwrap();
                let (status, headers) = head(status, &lines);
                turn.learn(status, &headers);
                turn.spend(&Tokens::output(3));
            }
        });
    }
}
