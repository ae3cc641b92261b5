//! Clients that stream responses of a language model and share one limit, in virtual time.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, response};
use http_body::Body;
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{
    Global, Quota, RateLimitLayer, SpendLayer,
    rate_limit::Exhausted,
    spend::{Declared, SpendReader, SpendReaders, Tokens},
};

use super::{StreamingBody, bodies};
use crate::{limiter, now};

/// The clients, each with one response at a time.
pub const STREAMS: u64 = 100;
/// The tokens of a response.
pub const TOKENS: u64 = 2_000;
/// The tokens a minute that all clients share.
pub const LIMIT: u64 = 50_000;
/// 25 tokens each 500 ms: 50 a second.
const TOKENS_A_FRAME: u64 = 25;
const FRAME: Duration = Duration::from_millis(500);
pub const FRAMES_A_MINUTE: usize = 120;

/// A way to charge responses, whose requests declare how long they are at most.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// The tokens are charged at the end, and those beyond the limit are forgotten.
    Afterwards,
    /// The most tokens that a request reserves, steps of a quarter of 1,024, and the debt of the limit.
    Reserving { reserve: u64, debt: u64 },
    /// As before with 1,024 tokens, but a response ends when nothing is left.
    Ending,
}

/// The use of a limit in virtual time.
#[derive(Debug)]
pub struct Use {
    /// The tokens of each half of a second.
    pub tokens: Vec<u64>,
    /// The responses that began, and those that ended early.
    pub begun: u64,
    pub ended_early: u64,
}

impl Use {
    /// The tokens of the minute before each half of a second.
    pub fn trailing_minutes(&self) -> Vec<u64> {
        let ends = 1..=self.tokens.len();
        let sum = |end: usize| self.tokens[end.saturating_sub(FRAMES_A_MINUTE)..end].iter();
        ends.map(|end| sum(end).sum()).collect()
    }

    pub fn worst_minute(&self) -> u64 {
        self.trailing_minutes().into_iter().max().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.tokens.iter().sum()
    }
}

impl Way {
    /// Runs the clients for so many minutes, as fast as they are allowed.
    pub fn run(self, minutes: usize) -> Use {
        let (reserve, step, debt) = match self {
            Self::Afterwards => (1, 1, 0),
            Self::Reserving { reserve, debt } => (reserve, 256, debt),
            Self::Ending => (1_024, 256, 0),
        };
        let (limiter, clock) = limiter(Quota::per_minute(LIMIT).debt(debt));
        let is_late = matches!(self, Self::Afterwards);
        let exhausted = match self {
            Self::Ending => Exhausted::End,
            _ => Exhausted::Finish,
        };
        let layer = RateLimitLayer::new(limiter, Global).spending(frame_counts(is_late));
        let layer = layer.reserve(reserve).step(step).exhausted(exhausted);
        run(&layer, minutes, |time| clock.advance(time))
    }
}

/// The frames of a response: an event each, which stands for 25 tokens.
pub fn frames() -> Vec<Bytes> {
    let words = (TOKENS / TOKENS_A_FRAME) as usize;
    let text = bodies::vllm_stream(&bodies::words(words), 0);
    // The first event has no token.
    let events: Vec<_> = text.split_inclusive("\n\n").skip(1).collect();
    let events = events[..words].iter();
    events
        .map(|event| Bytes::from((*event).to_owned()))
        .collect()
}

/// Reports the tokens that frames stand for: with each frame, or when the response has ended, as others count.
pub fn frame_counts(is_late: bool) -> impl SpendReaders {
    move |_: &response::Parts| Some(FrameCount { tokens: 0, is_late })
}

struct FrameCount {
    tokens: u64,
    is_late: bool,
}

impl SpendReader for FrameCount {
    fn data(&mut self, _: &[u8], tokens: &mut Tokens) {
        self.tokens += TOKENS_A_FRAME;
        if !self.is_late {
            tokens.report(&Tokens::output(self.tokens));
        }
    }

    fn end(&mut self, tokens: &mut Tokens) {
        tokens.report(&Tokens::output(self.tokens));
    }
}

/// A denied client sends again after a second.
fn run(layer: &SpendLayer, minutes: usize, mut advance: impl FnMut(Duration)) -> Use {
    let frames = frames();
    let mut service = layer.layer(service_fn(move |_: Request<()>| {
        let body = StreamingBody::new(frames.clone());
        async move { Ok::<_, std::io::Error>(Response::new(body)) }
    }));
    let mut declared = Declared::default();
    declared.max_tokens = Some(TOKENS);
    let mut open: Vec<_> = (0..STREAMS).map(|_| None).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut used = Use {
        tokens: Vec::new(),
        begun: 0,
        ended_early: 0,
    };
    for frame in 0..minutes * FRAMES_A_MINUTE {
        let mut tokens = 0;
        for client in &mut open {
            if client.is_none() && frame % 2 == 0 {
                assert!(service.poll_ready(&mut cx).is_ready());
                let mut request = Request::new(());
                request.extensions_mut().insert(declared.clone());
                let response = now(service.call(request)).expect("it never fails");
                *client = (response.status() == 200).then(|| response.into_body());
                used.begun += u64::from(client.is_some());
            }
            let Some(body) = client else { continue };
            match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(_))) => tokens += TOKENS_A_FRAME,
                Poll::Ready(Some(Err(_))) => used.ended_early += 1,
                _ => panic!("a frame is there"),
            }
            if body.is_end_stream() {
                *client = None;
            }
        }
        used.tokens.push(tokens);
        advance(FRAME);
    }
    used
}
