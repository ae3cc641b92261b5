//! A lane: one limit with its own counters and clock, in front of a service that responds hello.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use tower_layer::Layer;
use tower_ratelimit::{
    ConfigError, Headers, Key, LocalLimiter, PeerIp, Quota, RateLimitLayer,
    clock::{ManualClock, Timestamp},
    quota::Algorithm,
    rate_limit::RateLimit,
};
use tower_service::Service;

use crate::{
    json::Object,
    quota_as_rust_code::{number_after, rust_line, step},
};

/// The least number of clients that a lane can track at a time; its table has some spare room.
pub const MAX_KEYS: usize = 1_024;

/// A limit in front of a service, with the caller's time.
#[derive(Debug)]
pub struct Lane {
    quota: Quota,
    clock: ManualClock,
    limiter: LocalLimiter,
    service: RateLimit<Hello, LocalLimiter>,
}

impl Lane {
    /// A lane with this quota, such as `5/10s burst 10`.
    ///
    /// # Errors
    ///
    /// When the text is no valid quota.
    pub fn new(text: &str) -> Result<Self, ConfigError> {
        let quota: Quota = text.parse()?;
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder(quota)
            .max_keys(MAX_KEYS)
            .clock(clock.clone())
            .build()?;
        let layer = RateLimitLayer::new(limiter.clone(), PeerIp)
            .cost(|parts| parts.extensions.get().map_or(1, |Cost(cost)| *cost));
        Ok(Self {
            quota,
            clock,
            limiter,
            service: layer.layer(Hello),
        })
    }

    /// The quota as JSON: its text in the shortest form, its line of Rust, and its numbers.
    pub fn quota(&self) -> String {
        let quota = &self.quota;
        let (algorithm, queue) = match quota.algorithm() {
            Algorithm::TokenBucket => ("token_bucket", None),
            Algorithm::LeakyBucket { queue } => ("leaky_bucket", Some(queue)),
            Algorithm::FixedWindow => ("fixed_window", None),
            Algorithm::SlidingWindow => ("sliding_window", None),
            _ => ("sliding_log", None),
        };
        Object::new()
            .text("text", &quota.to_string())
            .text("rust", &rust_line(quota))
            .text("algorithm", algorithm)
            .number("limit", quota.limit())
            .micros("period", Some(quota.period()))
            .number("capacity", quota.capacity())
            .number("burst", number_after(quota, "burst"))
            .number("queue", queue)
            .number("slices", number_after(quota, "slices"))
            .micros("step", step(quota))
            .number("soft", number_after(quota, "soft"))
            .end()
    }

    /// Sends a request of this client, and returns as JSON the response and the client's state
    /// afterwards. Times are microseconds.
    pub fn decide(&mut self, now: Timestamp, client: u32, cost: u64) -> String {
        self.clock.set(now);
        let (response, delay) = match self.quota.algorithm() {
            Algorithm::LeakyBucket { .. } => self.call_limiter(client, cost),
            _ => (self.call_layer(client, cost), Duration::ZERO),
        };
        let denied = response.status() == 429;
        let outcome = match (denied, delay.is_zero()) {
            (true, _) => "denied",
            (_, true) => "allowed",
            (_, false) => "delayed",
        };
        // A denial takes nothing, so a peek has the same result.
        let denial = denied.then(|| self.limiter.peek(&key(client), cost));
        let fields = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("?")));
        let answer = Object::new()
            .text("outcome", outcome)
            .number("status", u64::from(response.status().as_u16()))
            .text("reason", response.status().canonical_reason().unwrap_or(""))
            .pairs("headers", fields)
            .text("body", response.body())
            .micros("delay", Some(delay))
            .micros(
                "retry_after",
                denial.and_then(|denial| denial.retry_after()),
            );
        self.with_state(answer, client).end()
    }

    /// Returns as JSON the state of this client, and the size of the table.
    pub fn peek(&self, now: Timestamp, client: u32) -> String {
        self.clock.set(now);
        self.with_state(Object::new(), client)
            .number("tracked_keys", self.limiter.tracked_keys() as u64)
            .number("evictions", self.limiter.evictions())
            .end()
    }

    fn with_state(&self, answer: Object, client: u32) -> Object {
        let state = self.limiter.peek(&key(client), 0);
        answer
            .number("remaining", state.remaining())
            .micros("reset_after", state.binding().reset_after())
    }

    /// Sends the request through the layer.
    fn call_layer(&mut self, client: u32, cost: u64) -> Response<String> {
        let mut request = Request::new(());
        request.extensions_mut().insert(peer(client));
        request.extensions_mut().insert(Cost(cost));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(())) = self.service.poll_ready(&mut cx) else {
            unreachable!("the service below is always ready");
        };
        match pin!(self.service.call(request)).poll(&mut cx) {
            Poll::Ready(Ok(response)) => response,
            _ => unreachable!("neither the layer nor the service below waits"),
        }
    }

    /// Calls the limiter as a handler does, and returns the wait. The layer would wait by a timer,
    /// which a page does not have.
    fn call_limiter(&self, client: u32, cost: u64) -> (Response<String>, Duration) {
        match self.limiter.acquire(&key(client), cost).into_result() {
            Ok(decision) => {
                let mut response = hello();
                Headers::new().apply(&decision, response.headers_mut());
                (response, decision.delay())
            }
            Err(denial) => (denial.response(), Duration::ZERO),
        }
    }
}

/// The units of a request.
#[derive(Debug, Clone, Copy)]
struct Cost(u64);

/// Addresses of RFC 2544, which are reserved.
fn peer(client: u32) -> SocketAddr {
    const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
    let address = Ipv4Addr::from_bits(FIRST.to_bits().wrapping_add(client));
    SocketAddr::new(IpAddr::V4(address), 50_000)
}

fn key(client: u32) -> Key {
    Key::from(peer(client).ip())
}

fn hello() -> Response<String> {
    let mut response = Response::new(String::from("hello\n"));
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// The service behind the limit.
#[derive(Debug, Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(hello()))
    }
}
