//! Many clients and one server, in virtual time: what the plots draw and the tests hold.
//!
//! Limiter, headers, pacer and retries are the real ones; only time and the network are made up. It
//! is the same each time, since chance has a seed.
#![allow(
    clippy::missing_panics_doc,
    reason = "what panics here is a fault of the example"
)]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{Global, LocalLimiter, Quota, RateLimitLayer, clock::TokioClock};
use tower_ratelimit_client::{Pacer, PacerLayer};

/// A request that reached the server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Arrival {
    /// When it arrived, since the start.
    pub at: Duration,
    /// The number of its client.
    pub client: usize,
    /// Whether the server accepted it.
    pub taken: bool,
}

/// The server's limiter, and all requests so far.
#[derive(Clone)]
struct Server {
    layer: RateLimitLayer,
    began: Instant,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Server {
    fn new(quota: Quota) -> Self {
        let limiter = LocalLimiter::builder(quota)
            .clock(TokioClock::new())
            .build();
        Self {
            layer: RateLimitLayer::new(limiter.expect("a quota that makes sense"), Global),
            began: Instant::now(),
            arrivals: Arc::default(),
        }
    }

    /// The server as one client reaches it: each way takes from 10 to 30 ms.
    fn reached_by(
        &self,
        client: usize,
    ) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static {
        let server = self.clone();
        let limited = self.layer.layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let sent = Arc::new(Mutex::new(client as u64 * 7_919));
        service_fn(move |request| {
            let (server, limited, sent) = (server.clone(), limited.clone(), Arc::clone(&sent));
            async move {
                sleep(delay(&sent)).await;
                let response = limited.oneshot(request).await?;
                server.arrivals.lock().expect("not poisoned").push(Arrival {
                    at: server.began.elapsed(),
                    client,
                    taken: response.status() == StatusCode::OK,
                });
                sleep(delay(&sent)).await;
                Ok(response)
            }
        })
    }

    fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock().expect("not poisoned"))
    }
}

/// From 10 to 30 ms.
fn delay(drawn: &Mutex<u64>) -> Duration {
    Duration::from_millis(10) + Duration::from_millis(20).mul_f64(fraction(drawn))
}

/// A number from 0 to 1 that depends on how many were drawn before (SplitMix64).
fn fraction(drawn: &Mutex<u64>) -> f64 {
    let mut drawn = drawn.lock().expect("not poisoned");
    *drawn += 1;
    let state = drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

fn request() -> Request<()> {
    let request = Request::get("https://api.example.com/").body(());
    request.expect("a request")
}

/// Runs in a time of its own, which moves when all wait.
fn in_virtual_time<F: Future>(run: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async { run().await })
}

/// Clients in [`convergence`].
pub const CLIENTS: usize = 8;

/// The requests per second that the server of [`convergence`] accepts.
pub const LIMIT: u64 = 100;

/// Eight clients that learn send as fast as they can for a minute, from sixteen tasks each, to a
/// server that accepts 100 requests a second in total.
///
/// # Panics
///
/// If a client panics.
pub fn convergence() -> Vec<Arrival> {
    in_virtual_time(async || {
        let server = Server::new(Quota::per_second(LIMIT));
        let end = server.began + Duration::from_secs(60);
        let mut tasks = Vec::new();
        for number in 0..CLIENTS {
            let pacer = Pacer::learning_builder()
                .clock(TokioClock::new())
                .seed(number as u64)
                .build()
                .expect("a pacer");
            let client = PacerLayer::new(pacer).layer(server.reached_by(number));
            for _ in 0..16 {
                let client = client.clone();
                tasks.push(tokio::spawn(async move {
                    while Instant::now() < end {
                        // The server counted the refusals already.
                        let _ = client.clone().oneshot(request()).await;
                    }
                }));
            }
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        server.arrivals()
    })
}

/// The wait of the clients of [`herd`] before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Again {
    /// Exactly the requested wait.
    Exactly,
    /// Up to a tenth more.
    TenPercent,
    /// The pacer's own.
    FullJitter,
}

/// A thousand clients of one request each arrive at the same moment at a server that accepts 100 a
/// second and 20 at once, and retry until it accepts them.
///
/// # Panics
///
/// If a client panics.
pub fn herd(again: Again) -> Vec<Arrival> {
    in_virtual_time(async || {
        let server = Server::new(Quota::per_second(100).burst(20));
        let tasks: Vec<_> = (0..1_000)
            .map(|number| tokio::spawn(one_of_the_herd(server.clone(), number, again)))
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        server.arrivals()
    })
}

async fn one_of_the_herd(server: Server, number: usize, again: Again) {
    let client = server.reached_by(number);
    if again == Again::FullJitter {
        let pacer = Pacer::learning_builder()
            .clock(TokioClock::new())
            .seed(number as u64)
            .max_wait(Duration::from_secs(600))
            .build()
            .expect("a pacer");
        let _ = PacerLayer::new(pacer)
            .layer(client)
            .oneshot(request())
            .await;
        return;
    }
    // A client without a pacer.
    let drawn = Mutex::new(number as u64 * 104_729);
    loop {
        let response = client.clone().oneshot(request()).await;
        let response = response.unwrap_or_else(|never| match never {});
        let Some(hint) = response.headers().get(RETRY_AFTER) else {
            return;
        };
        let seconds = hint.to_str().map(str::parse);
        let wait = Duration::from_secs(seconds.expect("text").expect("seconds"));
        let more = match again {
            Again::TenPercent => wait.mul_f64(fraction(&drawn) / 10.0),
            _ => Duration::ZERO,
        };
        sleep_until(Instant::now() + wait + more).await;
    }
}

/// Evenness by Jain of the accepted requests of each client after `from`; 1 for equal shares.
pub fn fairness(arrivals: &[Arrival], from: Duration) -> f64 {
    let mut taken = [0_f64; CLIENTS];
    for arrival in arrivals
        .iter()
        .filter(|arrival| arrival.taken && arrival.at >= from)
    {
        taken[arrival.client] += 1.0;
    }
    let sum: f64 = taken.iter().sum();
    let squares: f64 = taken.iter().map(|taken| taken * taken).sum();
    sum * sum / (CLIENTS as f64 * squares)
}
