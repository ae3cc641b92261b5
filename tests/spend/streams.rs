//! Charges that follow the bodies of responses.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::Poll,
};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use testkit::{
    Slow, limiter,
    llm::{StreamingBody, bodies},
    now,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, ConfigErrorKind, Global, Key, Limiter, LocalLimiter, Quota,
    RateLimitLayer, SpendLayer,
    observe::{Event, SpendSource},
    rate_limit::{Exhausted, Missing, SpendExhausted, Spent},
    spend::{Tokens, llm::Llm},
};

use crate::test_responses::{chat, next, passes_unchanged, poll, read, respond, stream};

const LIMIT: u64 = 10_000;

pub(crate) fn quota() -> Quota {
    Quota::per_minute(LIMIT).debt(LIMIT)
}

fn layer(limiter: &LocalLimiter) -> SpendLayer {
    RateLimitLayer::new(limiter.clone(), Global).spending(Llm::any())
}

/// The units that are taken of the limit.
pub(crate) fn taken(limiter: &LocalLimiter) -> u64 {
    LIMIT - limiter.peek(&Key::global(), 1).remaining().unwrap()
}

/// The corrections that a layer reports: before, after, forgotten and source.
type Corrections = Arc<Mutex<Vec<(u64, u64, u64, SpendSource)>>>;

fn observed(limiter: &LocalLimiter) -> (SpendLayer, Corrections) {
    let corrections = Corrections::default();
    let seen = Arc::clone(&corrections);
    let layer = RateLimitLayer::new(limiter.clone(), Global).observer(move |event: &Event<'_>| {
        if let Event::Corrected(corrected) = event {
            let (before, after) = (corrected.before(), corrected.after());
            let source = corrected.source().unwrap();
            seen.lock()
                .unwrap()
                .push((before, after, corrected.forgotten(), source));
        }
    });
    (layer.spending(Llm::any()), corrections)
}

#[test]
fn frames_boundaries_hints_and_trailers_pass_unchanged() {
    let text = bodies::chat_stream(&bodies::words(40), Some((11, 80)));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "1".parse().unwrap());
    for exhausted in [Exhausted::Finish, Exhausted::End] {
        for size in [1, 7, 300, 100_000] {
            for trailers in [None, Some(trailers.clone())] {
                let made = || {
                    let body = StreamingBody::split(text.clone(), size);
                    trailers
                        .clone()
                        .into_iter()
                        .fold(body, StreamingBody::with_trailers)
                };
                let layer = layer(&limiter(quota()).0).exhausted(exhausted).step(10);
                let (bare, body) = (made(), stream(&layer, made()).into_body());
                passes_unchanged(body, bare);
            }
        }
    }
}

/// The draft of the fields forbids them in trailers (sections 3.1 and 4.1).
#[test]
fn a_client_that_accepts_trailers_gets_none_of_the_limit() {
    let (limiter, _) = limiter(quota());
    for trailers in [
        None,
        Some(HeaderMap::from_iter([(
            http::header::ETAG,
            "1".parse().unwrap(),
        )])),
    ] {
        let body = chat(4, Some((11, 8)));
        let body = trailers
            .clone()
            .into_iter()
            .fold(body, StreamingBody::with_trailers);
        let head = Response::builder().header("content-type", "text/event-stream");
        let request = Request::post("/").header("te", "trailers");
        let response = respond(&layer(&limiter), request, head, body);
        assert!(response.headers().contains_key("ratelimit"));
        assert!(!response.headers().contains_key("trailer"));
        let collected = now(response.into_body().collect()).unwrap();
        assert_eq!(collected.trailers(), trailers.as_ref());
    }
}

#[test]
fn a_response_is_charged_what_it_reports() {
    for (usage, expected) in [((11, 80), 91), ((11, 8), 19), ((900, 5_000), 5_900)] {
        let (limiter, _) = limiter(quota());
        let response = stream(&layer(&limiter), chat(40, Some(usage)));
        assert_eq!(taken(&limiter), 1_024, "the reservation");
        read(response.into_body());
        assert_eq!(taken(&limiter), expected);
    }
    // As one body of JSON.
    let (limiter, _) = limiter(quota());
    let head = Response::builder().header("content-type", "application/json");
    let body = StreamingBody::split(bodies::embeddings(77, 500), 100);
    read(respond(&layer(&limiter), Request::post("/"), head, body).into_body());
    assert_eq!(taken(&limiter), 77);
}

#[test]
fn a_caller_that_checks_the_end_does_not_poll_again() {
    let (limiter, _) = limiter(quota());
    let mut body = stream(&layer(&limiter), chat(4, Some((11, 8)))).into_body();
    while !body.is_end_stream() {
        next(&mut body).unwrap().unwrap();
    }
    assert_eq!(taken(&limiter), 19);
}

#[test]
fn steps_are_charged_while_the_body_passes() {
    let (limiter, _) = limiter(quota());
    let layer = layer(&limiter).reserve(100).step(50);
    let mut body = stream(&layer, chat(200, None)).into_body();
    let mut charges = vec![taken(&limiter)];
    while let Some(frame) = next(&mut body) {
        frame.unwrap();
        let charged = taken(&limiter);
        if charges.last() != Some(&charged) {
            charges.push(charged);
        }
    }
    // 200 words of 2 tokens each: 375 + 25 is not beyond the last step, so it ends at what was used.
    assert_eq!(charges, [100, 150, 200, 250, 300, 350, 400, 450, 400]);
}

#[test]
fn a_frame_of_many_units_is_charged_in_one_step() {
    let (limiter, _) = limiter(quota());
    let layer = layer(&limiter).reserve(100).step(50);
    let text = bodies::vllm_stream(&bodies::words(990), 0);
    let mut body = stream(&layer, StreamingBody::split(text, 1 << 20)).into_body();
    next(&mut body).unwrap().unwrap();
    assert_eq!(taken(&limiter), 990);
}

#[test]
fn units_beyond_the_limit_are_owed_and_those_beyond_the_debt_are_reported() {
    let (limiter, clock) = limiter(quota());
    let (layer, corrections) = observed(&limiter);
    let layer = layer.reserve(1);
    read(stream(&layer, chat(4, Some((5_000, 12_000)))).into_body());
    let wait = limiter.peek(&Key::global(), 1).retry_after().unwrap();
    assert_eq!(
        wait.as_millis(),
        7_001 * 6,
        "10,000 of 60 s, and 7,000 owed"
    );
    clock.advance(wait);
    read(stream(&layer, chat(4, Some((20_000, 10_000)))).into_body());
    let seen = corrections.lock().unwrap();
    assert_eq!(seen[0], (1, 17_000, 0, SpendSource::Reported));
    let (before, after, forgotten, _) = seen[1];
    assert_eq!((before, after, forgotten), (1, 10_001, 19_999));
}

#[test]
fn a_body_that_is_dropped_is_charged_by_its_text_and_its_input() {
    let (limiter, _) = limiter(quota());
    let (layer, corrections) = observed(&limiter);
    let head = || Response::builder().header("content-type", "text/event-stream");
    let request = || Request::post("/").header("content-length", 400);
    let mut body = respond(&layer, request(), head(), chat(100, Some((90, 200)))).into_body();
    assert_eq!(taken(&limiter), 1_124);
    // The first event has no text.
    for _ in 0..11 {
        next(&mut body).unwrap().unwrap();
    }
    drop(body);
    assert_eq!(taken(&limiter), 120);
    // Nothing of it was read.
    drop(respond(&layer, request(), head(), chat(100, None)));
    assert_eq!(taken(&limiter), 220);
    let body = chat(100, None).breaking_off_after(6);
    let mut body = respond(&layer, request(), head(), body).into_body();
    while !matches!(next(&mut body), Some(Err(_))) {}
    assert_eq!(taken(&limiter), 330);
    let expected = [120, 100, 110].map(|units| (1_124, units, 0, SpendSource::Estimated));
    assert_eq!(*corrections.lock().unwrap(), expected);
}

#[test]
fn a_response_without_a_usage_is_charged_as_the_layer_says() {
    let charge = |missing, status, body: StreamingBody, content_type| {
        let (limiter, _) = limiter(quota());
        let layer = layer(&limiter).missing(missing);
        let head = Response::builder()
            .status(status)
            .header("content-type", content_type);
        let body = respond(&layer, Request::post("/"), head, body).into_body();
        let _ = now(body.collect());
        taken(&limiter)
    };
    let events = "text/event-stream";
    for (missing, expected) in [
        (Missing::Estimate, 20),
        (Missing::Keep, 1_024),
        (Missing::GiveBack, 0),
    ] {
        assert_eq!(
            charge(missing, 200, chat(10, None), events),
            expected,
            "{missing:?}"
        );
        assert_eq!(
            charge(missing, 200, chat(10, Some((1, 2))), events),
            3,
            "{missing:?}"
        );
        assert_eq!(
            charge(missing, 429, chat(10, None), events),
            0,
            "{missing:?}"
        );
        assert_eq!(
            charge(missing, 500, chat(10, Some((1, 2))), events),
            3,
            "{missing:?}"
        );
        // Else a client could break off all it reads.
        let breaks = chat(10, None).breaking_off_after(6);
        let expected = if missing == Missing::Keep { 1_024 } else { 10 };
        assert_eq!(
            charge(missing, 200, breaks, events),
            expected,
            "{missing:?}"
        );
        let expected = if missing == Missing::GiveBack {
            0
        } else {
            1_024
        };
        assert_eq!(
            charge(missing, 200, chat(10, None), "audio/mpeg"),
            expected,
            "{missing:?}"
        );
    }
}

#[test]
fn a_stream_that_ends_for_want_of_units_ends_before_the_frame() {
    let (limiter, _) = limiter(Quota::per_minute(LIMIT));
    let layer = layer(&limiter)
        .reserve(100)
        .step(50)
        .exhausted(Exhausted::End);
    assert!(limiter.acquire(&Key::global(), LIMIT - 130).is_allowed());
    let mut body = stream(&layer, chat(100, None)).into_body();
    let (mut frames, error) = std::iter::from_fn(|| next(&mut body)).fold(
        (0, None),
        |(frames, error), frame| match frame {
            Ok(_) => (frames + 1, error),
            Err(error) => (frames, Some(error)),
        },
    );
    frames -= 1; // The first event has no text.
    let error = error.unwrap();
    assert!(error.downcast_ref::<SpendExhausted>().is_some(), "{error}");
    assert_eq!(frames * 2, 130, "tokens");
    assert_eq!(taken(&limiter), LIMIT);
    assert!(body.is_end_stream() && next(&mut body).is_none());
}

#[test]
fn a_handler_reports_its_units_and_the_body_is_not_read() {
    let (limiter, _) = limiter(quota());
    let (layer, corrections) = observed(&limiter);
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let service = layer.layer(service_fn(move |request: Request<String>| {
        let spent = request.extensions().get::<Spent>().unwrap().clone();
        spent.add(&Tokens::output(30));
        spent.model("own");
        *keep.lock().unwrap() = Some(spent);
        async { Ok::<_, std::io::Error>(Response::new(chat(10, Some((5, 5))))) }
    }));
    let response = now(service.oneshot(Request::new(String::new()))).unwrap();
    let spent = kept.lock().unwrap().take().unwrap();
    spent.clone().add(&Tokens::input(7));
    assert_eq!(
        (spent.so_far().total(), spent.so_far().model()),
        (37, Some("own"))
    );
    read(response.into_body());
    assert_eq!(taken(&limiter), 37);
    spent.add(&Tokens::output(10));
    assert_eq!(taken(&limiter), 47, "after the end");
    assert_eq!(
        *corrections.lock().unwrap(),
        [(1_024, 37, 0, SpendSource::Handler)]
    );
}

#[test]
fn units_after_the_end_have_the_price_of_the_model_that_responded() {
    let (limiter, _) = limiter(quota());
    let layer = layer(&limiter).spends(|tokens| match tokens.model() {
        Some("gpt-4.1-mini") => tokens.total(),
        _ => 10 * tokens.total(),
    });
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let service = layer.layer(service_fn(move |request: Request<String>| {
        *keep.lock().unwrap() = request.extensions().get::<Spent>().cloned();
        let response = Response::builder().header("content-type", "text/event-stream");
        let response = response.body(chat(10, Some((5, 5)))).unwrap();
        async { Ok::<_, std::io::Error>(response) }
    }));
    let response = now(service.oneshot(Request::new(String::new()))).unwrap();
    read(response.into_body());
    assert_eq!(taken(&limiter), 10);
    let spent = kept.lock().unwrap().take().unwrap();
    spent.add(&Tokens::output(7));
    assert_eq!(taken(&limiter), 17);
    let mut other = Tokens::output(1);
    other.set_model("other");
    spent.add(&other);
    assert_eq!(taken(&limiter), 27, "a model of its own");
}

#[test]
fn a_body_that_is_dropped_by_a_panic_is_settled() {
    let (limiter, _) = limiter(quota());
    let layer = layer(&limiter);
    let layer = layer.spends(|tokens| {
        assert!(!(15..200).contains(&tokens.output), "a price that panics");
        tokens.total()
    });
    let body = stream(&layer, chat(100, None)).into_body();
    assert!(catch_unwind(AssertUnwindSafe(|| read(body))).is_err());
    assert_eq!(taken(&limiter), 14);
}

#[test]
fn responses_that_do_not_count_and_empty_ones_are_settled_at_once() {
    let (limiter, _) = limiter(quota());
    let by_status =
        RateLimitLayer::new(limiter.clone(), Global).count_if(|head| head.status != 418);
    let layer = by_status.spending(Llm::any());
    let body = chat(10, Some((5, 5)));
    let response = respond(
        &layer,
        Request::post("/"),
        Response::builder().status(418),
        body,
    );
    assert_eq!(taken(&limiter), 0);
    drop(response);
    assert_eq!(taken(&limiter), 0);
    let empty = respond(
        &layer,
        Request::post("/"),
        Response::builder(),
        StreamingBody::default(),
    );
    assert_eq!(taken(&limiter), 0, "no tokens");
    drop(empty);
    let response = stream(&layer, chat(10, Some((5, 5))));
    read(response.into_body());
    assert_eq!(taken(&limiter), 10);
}

#[test]
fn a_denied_request_is_rejected_with_the_fields_of_the_reservation() {
    let (limiter, _) = limiter(quota());
    let layer = layer(&limiter);
    let first = stream(&layer, chat(1, None));
    assert_eq!(first.headers()["ratelimit"], r#""default";r=8976;t=54"#);
    assert!(limiter.acquire(&Key::global(), 8_976).is_allowed());
    let denied = stream(&layer, chat(1, None));
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(denied);
    drop(first);
    assert_eq!(taken(&limiter), 8_976);
}

#[test]
fn an_elastic_layer_reserves_nothing_and_charges_the_end() {
    let (limiter, _) = limiter(quota());
    assert!(limiter.acquire(&Key::global(), LIMIT - 20).is_allowed());
    let layer = RateLimitLayer::new(limiter.clone(), Global).elastic(|| true);
    let response = stream(&layer.spending(Llm::any()), chat(4, Some((10, 500))));
    assert_eq!(
        (response.status().as_u16(), taken(&limiter)),
        (200, LIMIT - 20)
    );
    read(response.into_body());
    // Spare room is not owed.
    assert_eq!(taken(&limiter), LIMIT);
    let wait = limiter.peek(&Key::global(), 1).retry_after().unwrap();
    assert_eq!(wait.as_millis(), 6);
}

#[test]
fn limiters_that_cannot_owe_units_are_refused() {
    let nothing = |_: &http::response::Parts| None::<fn(&[u8], &mut Tokens)>;
    let kind = |layer: RateLimitLayer| layer.try_spending(nothing).unwrap_err().kind();
    let leaky = Quota::per_minute(10).leaky_bucket(5);
    assert_eq!(
        kind(RateLimitLayer::new(leaky, Global)),
        ConfigErrorKind::Debt
    );
    let blocking = LocalLimiter::builder(Quota::per_minute(10));
    let blocking = blocking
        .block_for(std::time::Duration::from_secs(60))
        .build()
        .unwrap();
    assert_eq!(
        kind(RateLimitLayer::new(blocking, Global)),
        ConfigErrorKind::Debt
    );
}

#[test]
fn an_outer_layer_rejects_with_this_body() {
    let (limiter, _) = limiter(quota());
    let service = layer(&limiter).layer(service_fn(async |_: Request<String>| {
        Ok::<_, std::io::Error>(Response::new(chat(1, None)))
    }));
    let outer = ConcurrencyLayer::new(Concurrency::max(1), Global).layer(service);
    let held = now(outer.clone().oneshot(Request::new(String::new()))).unwrap();
    let rejected = now(outer.oneshot(Request::new(String::new()))).unwrap();
    assert_eq!(
        (held.status().as_u16(), rejected.status().as_u16()),
        (200, 429)
    );
}

/// Behind a store that answers when it is let.
pub(crate) fn slow() -> (
    LocalLimiter,
    Arc<tokio::sync::Semaphore>,
    SpendLayer<impl Limiter>,
) {
    let (limiter, _) = limiter(quota());
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let slow = Slow {
        limiter: limiter.clone(),
        gate: Arc::clone(&gate),
    };
    let layer = RateLimitLayer::new(slow, Global)
        .spending(Llm::any())
        .reserve(100)
        .step(50);
    (limiter, gate, layer)
}

/// Lets the tasks run that can.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_question_at_a_time_and_no_frame_waits() {
    let (limiter, gate, layer) = slow();
    gate.add_permits(1);
    let mut body = stream(&layer, chat(200, None)).into_body();
    while let Some(frame) = next(&mut body) {
        frame.unwrap();
    }
    // The first step was not answered; the rest follows when it is.
    assert_eq!(taken(&limiter), 100);
    gate.add_permits(1);
    settle().await;
    assert_eq!(taken(&limiter), 150);
    gate.add_permits(1);
    settle().await;
    assert_eq!((taken(&limiter), gate.available_permits()), (400, 0));
}

#[tokio::test]
async fn a_frame_waits_until_it_is_charged_if_streams_end() {
    let (limiter, gate, layer) = slow();
    let layer = layer.exhausted(Exhausted::End);
    gate.add_permits(1);
    let mut body = stream(&layer, chat(60, None)).into_body();
    let mut tokens = 0;
    while let Poll::Ready(frame) = poll(&mut body) {
        frame.unwrap().unwrap();
        tokens += 2;
    }
    // The first event has no text, and the frame that waits is the one beyond the reservation.
    assert_eq!(tokens - 2, 100);
    assert!(!body.is_end_stream());
    let bare = chat(60, None).size_hint().exact().unwrap();
    assert!(body.size_hint().exact().unwrap() < bare);
    gate.add_permits(1);
    while let Poll::Ready(Some(frame)) = poll(&mut body) {
        frame.unwrap();
    }
    assert_eq!(
        taken(&limiter),
        150,
        "the answer about the end is still to come"
    );
    gate.add_permits(1);
    settle().await;
    assert_eq!(taken(&limiter), 120);
}

#[tokio::test]
async fn a_body_that_is_dropped_while_a_step_is_under_way_settles_after_it() {
    let (limiter, gate, layer) = slow();
    gate.add_permits(1);
    let mut body = stream(&layer, chat(200, None)).into_body();
    for _ in 0..51 {
        next(&mut body).unwrap().unwrap();
    }
    drop(body);
    gate.add_permits(2);
    settle().await;
    assert_eq!((taken(&limiter), gate.available_permits()), (100, 0));
}

#[test]
fn only_the_newest_four_receipts_are_refunded() {
    let (limiter, _) = limiter(quota());
    let (layer, corrections) = observed(&limiter);
    let layer = layer.reserve(100).step(50);
    // The estimate of 400 is far above the 10 that are reported: five steps, and the reservation.
    let words = bodies::words(125);
    read(
        stream(
            &layer,
            StreamingBody::events(&bodies::chat_stream(&words, Some((5, 5)))),
        )
        .into_body(),
    );
    // 250 tokens by the text, 275 with half a step: charged are 100 and 4 steps.
    assert_eq!(taken(&limiter), 100);
    let expected = [(100, 100, 0, SpendSource::Reported)];
    assert_eq!(*corrections.lock().unwrap(), expected);
}

#[test]
fn litellm_29193_the_first_request_of_a_small_limit_is_allowed() {
    let small = Quota::per_minute(100);
    let layer = RateLimitLayer::new(small, Global).spending(Llm::any());
    assert_eq!(stream(&layer, chat(1, Some((3, 4)))).status(), 200);
}

#[test]
fn litellm_30519_a_client_that_goes_away_does_not_keep_its_reservation() {
    let (limiter, _) = limiter(quota());
    let mut body = stream(&layer(&limiter), chat(100, None)).into_body();
    next(&mut body).unwrap().unwrap();
    assert_eq!(taken(&limiter), 1_024);
    drop(body);
    assert_eq!(taken(&limiter), 0);
}

#[test]
fn ai_gateway_2563_the_usage_of_a_client_that_goes_away_is_not_lost() {
    let (limiter, _) = limiter(quota());
    let text = bodies::vllm_stream(&bodies::words(500), 40);
    let mut body = stream(&layer(&limiter), StreamingBody::events(&text)).into_body();
    for _ in 0..301 {
        next(&mut body).unwrap().unwrap();
    }
    drop(body);
    assert_eq!(taken(&limiter), 340);
}

#[test]
fn litellm_18730_streams_at_once_do_not_overshoot_by_a_response_each() {
    let limit = Quota::per_minute(100).debt(100);
    let (limiter, _) = limiter(limit);
    let layer = layer(&limiter);
    let responses: Vec<_> = (0..7)
        .map(|_| stream(&layer, chat(1, Some((20, 75)))))
        .collect();
    let allowed = responses.iter().filter(|response| response.status() == 200);
    assert_eq!(allowed.count(), 1, "663 of 100 tokens passed there");
}
