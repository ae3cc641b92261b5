//! Clients of our own servers, over HTTP/1, HTTP/2 and gRPC.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::{Global, LocalLimiter, Quota, RateLimitLayer, clock::TokioClock};
use tower_ratelimit_client::{Pacer, PacerLayer, PacerStats};

use super::{
    builder, millis, seconds,
    simulated_network::{Http, client},
};

const TASKS: usize = 64;

/// A server of axum that counts refusals. Requests take up to `delay` on the way.
#[derive(Clone)]
struct Api {
    app: Router,
    delay: Duration,
    arrived: Arc<AtomicU64>,
    refused: Arc<Mutex<Vec<Instant>>>,
}

impl Api {
    fn new(quota: Quota, delay: Duration) -> Self {
        let limiter = LocalLimiter::builder(quota).clock(TokioClock::new());
        let limit = RateLimitLayer::new(limiter.build().unwrap(), Global);
        Self {
            app: Router::new()
                .route("/", get(|| async { "hello" }))
                .layer(limit),
            delay,
            arrived: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// The time of the refusal.
    fn refusals(&self) -> Vec<Instant> {
        self.refused.lock().unwrap().clone()
    }

    fn service(
        &self,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let api = self.clone();
        tower::service_fn(move |request: Request<Incoming>| {
            let api = api.clone();
            async move {
                let n = api.arrived.fetch_add(1, Ordering::SeqCst) + 1;
                let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let share = (mixed >> 32) as f64 / f64::from(u32::MAX);
                sleep(api.delay.mul_f64(share)).await;
                let response = api.app.clone().oneshot(request.map(Body::new)).await?;
                if response.status() == StatusCode::TOO_MANY_REQUESTS {
                    api.refused.lock().unwrap().push(Instant::now());
                }
                Ok(response)
            }
        })
    }
}

struct LoadResult {
    /// The results of callers other than 200.
    failed: usize,
    stats: PacerStats,
}

/// Sends this many requests from 64 tasks.
async fn load(api: &Api, pacer: &Pacer, http: Http, requests: usize) -> LoadResult {
    let client = PacerLayer::new(pacer.clone()).layer(client(api.service(), http));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut failed = 0;
                for _ in 0..requests / TASKS {
                    let request = Request::get("http://api.example.com/").body(String::new());
                    let answer = client.clone().oneshot(request.unwrap()).await;
                    let status = answer.map(|response| response.status());
                    failed += usize::from(!matches!(status, Ok(StatusCode::OK)));
                }
                failed
            })
        })
        .collect();
    let mut failed = 0;
    for task in tasks {
        failed += task.await.unwrap();
    }
    LoadResult {
        failed,
        stats: pacer.stats(&"http://api.example.com".parse().unwrap()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_limit_is_never_exceeded() {
    let quota = Quota::per_second(1_000).burst(600);
    let margin = millis(250);
    for (http, requests) in [(Http::One, 10), (Http::Two, 100)] {
        let api = Api::new(quota, margin);
        let pacer = builder(quota)
            .margin(margin)
            .max_wait(seconds(600))
            .build()
            .unwrap();
        let result = load(&api, &pacer, http, TASKS * requests).await;
        assert_eq!((result.failed, api.refusals().len()), (0, 0), "{http:?}");
        assert_eq!((result.stats.queued, result.stats.in_flight), (0, 0));
        let arrived = api.arrived.load(Ordering::SeqCst);
        assert_eq!(arrived, (TASKS * requests) as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_limit_is_learned_from_the_first_burst() {
    let api = Api::new(Quota::per_second(100).burst(5), millis(20));
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .max_wait(seconds(600))
        .seed(3)
        .build()
        .unwrap();
    let began = Instant::now();
    let result = load(&api, &pacer, Http::Two, 640).await;
    let refusals = api.refusals();
    assert_eq!(result.failed, 0);
    // About half of the first ten, and none after the first response.
    assert!((1..=5).contains(&refusals.len()), "{}", refusals.len());
    assert!(refusals.iter().all(|at| *at - began <= millis(20)));
    // The page's section on small bursts: five a second, of a hundred.
    let took = began.elapsed().as_secs();
    assert!((110..=140).contains(&took), "{took}");
}
