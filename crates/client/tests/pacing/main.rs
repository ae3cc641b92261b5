//! Outgoing requests: in virtual time, which moves when everybody waits.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod dropped_calls;
#[cfg(feature = "axum")]
mod end_to_end;
mod fuzz_target_properties;
#[cfg(feature = "tonic")]
mod grpc;
mod malformed_responses;
mod many_clients;
#[cfg(feature = "reqwest-middleware")]
mod reqwest;
mod response_signals;
mod retries;
mod safety_margin;
mod shared_provider_account;
mod simulated_network;
mod units;
mod waiting;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::{Instant, sleep};
use tower::Service;
use tower_ratelimit::clock::TokioClock;
use tower_ratelimit_client::{Destination, IntoDeclaredLimit, Pacer, PacerBuilder};

/// Where requests of these tests go.
fn api() -> Destination {
    "https://api.example.com".parse().unwrap()
}

const URL: &str = "https://api.example.com/things?id=7";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A pacer whose time is tokio's, without chance, and without a margin.
fn builder<Via>(limit: impl IntoDeclaredLimit<Via>) -> PacerBuilder {
    Pacer::builder(limit)
        .clock(TokioClock::new())
        .margin(Duration::ZERO)
        .seed(7)
}

/// A head of a response.
fn head(status: u16, lines: &[(&str, &str)]) -> (StatusCode, HeaderMap) {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    (StatusCode::from_u16(status).unwrap(), headers)
}

type Answer =
    dyn Fn(usize, &Request<String>) -> Result<Response<String>, std::io::Error> + Send + Sync;

/// A server that answers request after request by a closure, and remembers what it was sent.
#[derive(Clone)]
struct Server {
    answer: Arc<Answer>,
    delay: Duration,
    requests: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Server {
    fn new(
        answer: impl Fn(usize, &Request<String>) -> Result<Response<String>, std::io::Error>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            answer: Arc::new(answer),
            delay: Duration::ZERO,
            requests: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// Gives these answers, and 200 when they are used up.
    fn scripted(answers: &'static [(u16, &'static [(&'static str, &'static str)])]) -> Self {
        Self::new(|n, _| {
            let (status, lines) = answers.get(n).copied().unwrap_or((200, &[]));
            Ok(response(status, lines))
        })
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn bodies(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|(_, body)| body.clone()).collect()
    }

    fn times(&self) -> Vec<Instant> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|(at, _)| *at)
            .collect()
    }
}

fn response(status: u16, lines: &[(&str, &str)]) -> Response<String> {
    let (status, headers) = head(status, lines);
    let mut response = Response::new(String::new());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

impl Service<Request<String>> for Server {
    type Response = Response<String>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let n = self.requests.fetch_add(1, Ordering::SeqCst);
        let body = request.body().clone();
        self.seen.lock().unwrap().push((Instant::now(), body));
        let answer = (self.answer)(n, &request);
        let delay = self.delay;
        Box::pin(async move {
            sleep(delay).await;
            answer
        })
    }
}

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
