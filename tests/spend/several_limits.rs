//! Charges of several limits that follow the bodies of responses.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use testkit::{AGE, llm::StreamingBody};
use tower_ratelimit::{
    ConfigErrorKind, Global, Header, Key, KeyErrorKind, LocalLimiter, LocalStore, MissingKey,
    PeerIp, Quota, RateLimitLayer, SpendLayer,
    decision::Op,
    limiter::{JointLimiter, KeyedLimit, Tier},
    observe::{Event, SpendSource},
    rate_limit::{Exhausted, Spent},
    spend::{Tokens, llm::Llm},
};

use crate::test_responses::{chat, next, read, respond, stream};

type Layer = SpendLayer<JointLimiter>;

/// Nothing returns while the test runs.
fn lasting(limit: u64) -> Quota {
    Quota::per(limit, AGE / 4).fixed_window()
}

fn requests() -> Quota {
    lasting(5).named("requests")
}

fn tokens() -> Quota {
    lasting(10_000).named("tokens").debt(10_000)
}

/// Two units for each token of input, and eight for each of output.
fn price(tokens: &Tokens) -> u64 {
    2 * tokens.input + 8 * tokens.output
}

fn dollars() -> Quota {
    lasting(100_000).named("usd").debt(100_000)
}

fn all(limits: impl IntoIterator<Item = KeyedLimit>) -> RateLimitLayer<JointLimiter> {
    RateLimitLayer::all(limits)
}

fn layer() -> Layer {
    let limits = [
        requests().by(Global),
        tokens().by(Global).spends(Tokens::total),
        dollars().by(Global).spends(price),
    ];
    all(limits).spending(Llm::any())
}

/// The units that are taken of each limit.
fn taken(layer: &Layer) -> Vec<u64> {
    let limits = layer.limiter().limiters().iter();
    let taken = limits.map(|limiter| {
        let limit = limiter.peek(&Key::global(), 1);
        limit
            .quotas()
            .map(|quota| quota.limit() - quota.remaining().unwrap())
            .sum()
    });
    taken.collect()
}

#[test]
fn each_limit_is_charged_its_own_units() {
    let layer = layer();
    let response = stream(&layer, chat(40, Some((11, 80))));
    assert_eq!(taken(&layer), [1, 1_024, 8 * 1_024], "the reservation");
    read(response.into_body());
    assert_eq!(taken(&layer), [1, 91, 22 + 640]);
    // Beyond the reservation.
    read(stream(&layer, chat(40, Some((900, 5_000)))).into_body());
    assert_eq!(taken(&layer), [2, 91 + 5_900, 662 + 1_800 + 40_000]);
}

#[test]
fn limits_are_reserved_all_or_none() {
    let layer = layer();
    let first = &layer.limiter().limiters()[0];
    assert!(first.acquire(&Key::global(), 5).is_allowed());
    let denied = stream(&layer, chat(1, None));
    assert_eq!(denied.status(), 429);
    assert_eq!(taken(&layer), [5, 0, 0]);
}

#[test]
fn a_reservation_is_at_most_what_each_limit_holds() {
    let limits = [
        requests().by(Global),
        lasting(100).named("few").by(Global).spends(Tokens::total),
        lasting(1_000).named("more").by(Global).spends(price),
    ];
    let layer = all(limits).spending(Llm::any());
    let response = stream(&layer, chat(1, Some((3, 4))));
    assert_eq!(
        (response.status().as_u16(), taken(&layer)),
        (200, vec![1, 100, 1_000])
    );
    read(response.into_body());
    assert_eq!(taken(&layer), [1, 7, 38]);
}

#[test]
fn steps_are_of_the_units_of_each_limit() {
    let layer = layer().reserve(100).step(50);
    let mut body = stream(&layer, chat(70, None)).into_body();
    // The first event has no text. 76 tokens, and 25 of half a step, are beyond 100.
    for (frames, steps) in [(38, 0), (1, 1), (24, 1), (1, 2)] {
        for _ in 0..frames {
            next(&mut body).unwrap().unwrap();
        }
        let tokens = 100 + 50 * steps;
        assert_eq!(
            taken(&layer),
            [1, tokens, 8 * tokens],
            "{frames} frames more"
        );
    }
    drop(body);
    assert_eq!(taken(&layer), [1, 126, 8 * 126]);
}

#[test]
fn a_step_is_charged_at_the_limits_that_need_it() {
    // A limit of input needs no steps.
    let limits = [
        lasting(10_000)
            .named("input")
            .by(Global)
            .spends(|tokens| tokens.input),
        tokens().by(Global).spends(Tokens::total),
    ];
    let layer = all(limits).spending(Llm::any()).reserve(100).step(50);
    let mut body = stream(&layer, chat(60, None)).into_body();
    while let Some(frame) = next(&mut body) {
        frame.unwrap();
    }
    assert_eq!(taken(&layer), [0, 120]);
}

#[test]
fn a_stream_ends_when_nothing_is_left_of_one_limit() {
    let limits = [
        requests().by(Global),
        lasting(10_000)
            .named("tokens")
            .by(Global)
            .spends(Tokens::total),
        lasting(1_000).named("usd").by(Global).spends(price),
    ];
    let layer = all(limits)
        .spending(Llm::any())
        .reserve(100)
        .step(50)
        .exhausted(Exhausted::End);
    let mut body = stream(&layer, chat(200, None)).into_body();
    let mut frames = 0;
    let error = loop {
        match next(&mut body).unwrap() {
            Ok(_) => frames += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("limit"), "{error}");
    // 125 tokens of 8 units; the first event has no text, the others have two tokens each.
    assert_eq!(frames, 1 + 62);
    assert_eq!(taken(&layer), [1, 124, 992]);
}

#[test]
fn an_error_without_a_usage_is_a_request_and_no_tokens() {
    for (counts, expected) in [(true, [1, 0, 0]), (false, [0, 0, 0])] {
        let limits = [
            requests().by(Global),
            tokens().by(Global).spends(Tokens::total),
            dollars().by(Global).spends(price),
        ];
        let layer = all(limits).count_if(move |_| counts).spending(Llm::any());
        let head = Response::builder()
            .status(500)
            .header("content-type", "application/json");
        let body = StreamingBody::split("{}".to_owned(), 10);
        read(respond(&layer, Request::post("/"), head, body).into_body());
        assert_eq!(taken(&layer), expected);
    }
}

#[test]
fn a_limit_whose_key_is_missing_is_left_out() {
    let limits = [
        tokens().by(Header::new("x-tenant")).spends(Tokens::total),
        requests().by(Global),
        dollars().by(Global).spends(price),
    ];
    let layer = all(limits)
        .on_missing_key(KeyErrorKind::Absent, MissingKey::Skip)
        .cost(|_| 2)
        .spending(Llm::any());
    read(stream(&layer, chat(40, Some((11, 80)))).into_body());
    assert_eq!(taken(&layer), [0, 2, 662]);
    let limits = [
        tokens().by(Header::new("x-tenant")).spends(Tokens::total),
        requests().by(Global),
    ];
    let layer = all(limits)
        .on_missing_key(KeyErrorKind::Absent, MissingKey::Skip)
        .spending(Llm::any());
    read(stream(&layer, chat(40, Some((11, 80)))).into_body());
    assert_eq!(taken(&layer), [0, 1]);
}

#[test]
fn one_limit_of_a_list_is_charged_by_its_units() {
    let layer = all([dollars().by(Global).spends(price)]).spending(Llm::any());
    let response = stream(&layer, chat(40, Some((11, 80))));
    assert_eq!(taken(&layer), [8 * 1_024]);
    read(response.into_body());
    assert_eq!(taken(&layer), [662]);
}

#[test]
fn a_tier_of_one_limit_leaves_the_others_as_they_are() {
    let store = LocalStore::new();
    let plain = LocalLimiter::builder(requests()).build_in(&store).unwrap();
    let tiered = LocalLimiter::builder(tokens())
        .tier("pro", lasting(50_000).named("tokens"))
        .build_in(&store)
        .unwrap();
    let layer = RateLimitLayer::all([plain.by(Global), tiered.by(Global).spends(Tokens::total)])
        .tier(|_| Tier::named("pro"))
        .spending(Llm::any());
    let response = stream(&layer, chat(40, Some((11, 20_000))));
    assert_eq!(response.status(), 200);
    read(response.into_body());
    let tokens = &layer.limiter().limiters()[1];
    let peek = testkit::apply_in(tokens, &Tier::named("pro"), &Key::global(), Op::Peek(1));
    let tokens = testkit::now(std::future::IntoFuture::into_future(peek)).unwrap();
    assert_eq!(tokens.remaining(), Some(50_000 - 20_011));
    assert_eq!(taken(&layer)[0], 1);
}

#[test]
fn an_elastic_layer_charges_every_limit_at_the_end() {
    let limits = [
        requests().by(Global),
        tokens().by(Global).spends(Tokens::total),
    ];
    let layer = all(limits).elastic(|| true).spending(Llm::any());
    assert!(
        layer.limiter().limiters()[1]
            .acquire(&Key::global(), 9_900)
            .is_allowed()
    );
    let response = stream(&layer, chat(4, Some((10, 50))));
    assert_eq!(taken(&layer), [0, 9_900]);
    read(response.into_body());
    assert_eq!(taken(&layer), [1, 9_960]);
}

#[test]
fn tokens_that_a_handler_adds_after_the_end_are_charged_to_their_limits() {
    let layer = layer();
    let spent: Arc<Mutex<Option<Spent>>> = Arc::default();
    let kept = Arc::clone(&spent);
    let service = tower::Layer::layer(
        &layer,
        tower::service_fn(move |request: Request<()>| {
            *kept.lock().unwrap() = request.extensions().get::<Spent>().cloned();
            async { Ok::<_, std::io::Error>(Response::new(chat(1, None))) }
        }),
    );
    let response = testkit::now(tower::ServiceExt::oneshot(service, Request::new(()))).unwrap();
    read(response.into_body());
    let before = taken(&layer);
    spent
        .lock()
        .unwrap()
        .take()
        .unwrap()
        .add(&Tokens::output(100));
    let after = taken(&layer);
    let more: Vec<_> = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    assert_eq!(more, [0, 100, 800]);
}

#[test]
fn units_beyond_the_debt_are_reported_by_limit() {
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let reports = Arc::clone(&seen);
    let limits = [
        requests().by(Global),
        lasting(1_000)
            .named("tokens")
            .by(Global)
            .spends(Tokens::total),
        dollars().by(Global).spends(price),
    ];
    let layer = all(limits).observer(move |event: &Event<'_>| {
        if let Event::Corrected(corrected) = event {
            let report = (corrected.after(), corrected.forgotten(), corrected.source());
            reports.lock().unwrap().push(report);
        }
    });
    let layer = layer.spending(Llm::any());
    read(stream(&layer, chat(4, Some((10, 1_500)))).into_body());
    assert_eq!(taken(&layer), [1, 1_000, 12_020]);
    assert_eq!(
        *seen.lock().unwrap(),
        [(1, 510, Some(SpendSource::Reported))]
    );
}

#[test]
fn limits_that_cannot_be_charged_by_responses_are_refused() {
    let kind = |limits: Vec<KeyedLimit>| {
        let layer = RateLimitLayer::all(limits).try_spending(Llm::any());
        layer.unwrap_err().kind()
    };
    let none = vec![tokens().by(Global), requests().by(PeerIp)];
    assert_eq!(kind(none), ConfigErrorKind::Joint);
    let leaky = lasting(10).leaky_bucket(5).named("leaky");
    let by_response = vec![
        leaky.by(Global).spends(Tokens::total),
        requests().by(PeerIp),
    ];
    assert_eq!(kind(by_response), ConfigErrorKind::Debt);
    // It is charged once, as ever.
    let by_request = [leaky.by(Global), tokens().by(Global).spends(Tokens::total)];
    let layer = all(by_request).spending(Llm::any());
    read(stream(&layer, chat(4, Some((10, 15)))).into_body());
    assert_eq!(
        layer.limiter().limiters()[1]
            .peek(&Key::global(), 1)
            .remaining(),
        Some(9_975)
    );
}

#[test]
#[should_panic(expected = "give each limit its units")]
fn several_limits_have_no_units_in_common() {
    let _ = layer().spends(price);
}
