//! How far streams go beyond their limit, beside a limit that counts afterwards.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use testkit::{
    limiter,
    llm::{StreamingBody, bodies},
    now,
};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{
    Global, Key, Quota, RateLimitLayer, SpendLayer,
    spend::{
        SpendReader, SpendReaders, Tokens,
        llm::{Llm, LlmReader},
    },
};

const STREAMS: u64 = 100;
/// The tokens of a response.
const TOKENS: u64 = 2_000;
const LIMIT: u64 = 50_000;
const RESERVE: u64 = 1_024;
const STEP: u64 = 256;
/// 25 tokens each 500 ms: 50 a second.
const TOKENS_A_FRAME: u64 = 25;
const FRAME: Duration = Duration::from_millis(500);
const FRAMES_A_MINUTE: usize = 120;

/// A response whose frames report their tokens: an event each, which stands for [`TOKENS_A_FRAME`].
fn frames() -> Vec<Bytes> {
    let words = usize::try_from(TOKENS / TOKENS_A_FRAME).unwrap();
    let text = bodies::vllm_stream(&bodies::words(words), 0);
    // The first event has no token.
    let events: Vec<_> = text.split_inclusive("\n\n").skip(1).collect();
    events[..words]
        .iter()
        .map(|event| Bytes::from((*event).to_owned()))
        .collect()
}

/// Finds the tokens that frames stand for: of each frame, or when the response has ended, as others count.
struct Counting {
    reader: LlmReader,
    tokens: Tokens,
    is_late: bool,
}

impl Counting {
    fn report(&self, to: &mut Tokens) {
        to.report(&Tokens::output(self.tokens.output * TOKENS_A_FRAME));
    }
}

impl SpendReader for Counting {
    fn data(&mut self, data: &[u8], tokens: &mut Tokens) {
        self.reader.data(data, &mut self.tokens);
        if !self.is_late {
            self.report(tokens);
        }
    }

    fn end(&mut self, tokens: &mut Tokens) {
        self.report(tokens);
    }
}

fn counting(is_late: bool) -> impl SpendReaders {
    move |response: &http::response::Parts| {
        let mut tokens = Tokens::default();
        let reader = Llm::any().reader(response, &mut tokens)?;
        Some(Counting {
            reader,
            tokens,
            is_late,
        })
    }
}

/// Clients that each read one response after another, as fast as they are allowed. Returns the tokens of each frame's
/// time.
fn run(layer: &SpendLayer, minutes: usize, mut advance: impl FnMut(Duration)) -> Vec<u64> {
    let frames = frames();
    let mut service = layer.layer(service_fn(move |_: Request<()>| {
        let response = Response::builder().header("content-type", "text/event-stream");
        let response = response.body(StreamingBody::new(frames.clone())).unwrap();
        async move { Ok::<_, std::io::Error>(response) }
    }));
    let mut open: Vec<_> = (0..STREAMS).map(|_| None).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut used = Vec::new();
    for frame in 0..minutes * FRAMES_A_MINUTE {
        let mut tokens = 0;
        for client in &mut open {
            // A denied client sends again after a second.
            if client.is_none() && frame % 2 == 0 {
                assert!(service.poll_ready(&mut cx).is_ready());
                let response = now(service.call(Request::new(()))).unwrap();
                *client = (response.status() == 200).then(|| response.into_body());
            }
            let Some(body) = client else { continue };
            match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(Some(frame)) => {
                    frame.unwrap();
                    tokens += TOKENS_A_FRAME;
                }
                _ => panic!("a frame is there"),
            }
            if body.is_end_stream() {
                *client = None;
            }
        }
        used.push(tokens);
        advance(FRAME);
    }
    used
}

fn worst_minute(used: &[u64]) -> u64 {
    let minutes = used.windows(FRAMES_A_MINUTE);
    minutes.map(|minute| minute.iter().sum()).max().unwrap()
}

#[test]
fn overshoot_of_100_streams_is_below_the_bound_and_in_the_long_run_there_is_none() {
    const MINUTES: usize = 6;
    let (owing, clock) = limiter(Quota::per_minute(LIMIT).debt(LIMIT));
    let layer = RateLimitLayer::new(owing, Global).spending(counting(false));
    let layer = layer.reserve(RESERVE).step(STEP);
    let used = run(&layer, MINUTES, |time| clock.advance(time));

    // The tokens are charged at the end, and what goes beyond the limit is forgotten.
    let (limit, clock) = limiter(Quota::per_minute(LIMIT));
    let after = RateLimitLayer::new(limit, Global).spending(counting(true));
    let after = after.reserve(1).step(1);
    let afterwards = run(&after, MINUTES, |time| clock.advance(time));

    let bound = 2 * LIMIT + LIMIT + LIMIT + STREAMS * (RESERVE + STEP);
    let (worst, worst_after) = (worst_minute(&used), worst_minute(&afterwards));
    let total: u64 = used.iter().sum();
    let total_after: u64 = afterwards.iter().sum();
    let minutes = u64::try_from(MINUTES).unwrap();
    let share = |tokens: u64| tokens as f64 / LIMIT as f64;
    println!("bound of a minute: {:.2} of the limit", share(bound));
    println!(
        "worst minute: {:.2}, counted afterwards {:.2}",
        share(worst),
        share(worst_after)
    );
    println!(
        "all {MINUTES} minutes: {:.2}, counted afterwards {:.2}",
        share(total) / minutes as f64,
        share(total_after) / minutes as f64
    );
    assert!(worst <= bound, "{worst}");
    assert!(worst <= 3 * LIMIT, "{worst}");
    assert!(worst_after > 4 * LIMIT, "{worst_after}");
    // The bucket at the start, its debt at the end, and what is open.
    let most = LIMIT * (minutes + 2) + STREAMS * (RESERVE + STEP);
    assert!(total <= most, "{total}");
}

#[test]
fn streams_that_start_at_once_owe_what_they_used_to_the_unit() {
    let (limiter, clock) = limiter(Quota::per_minute(LIMIT).debt(LIMIT));
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(counting(false));
    let layer = layer.reserve(RESERVE).step(STEP);
    let used: u64 = {
        // No time passes, and each client has one response.
        let frames = frames();
        let mut service = layer.layer(service_fn(move |_: Request<()>| {
            let response = Response::builder().header("content-type", "text/event-stream");
            let response = response.body(StreamingBody::new(frames.clone())).unwrap();
            async move { Ok::<_, std::io::Error>(response) }
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
