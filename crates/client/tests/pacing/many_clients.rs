//! Many learning clients of one limit, beside clients that back off with full jitter.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{Global, LocalLimiter, Quota, RateLimitLayer, clock::TokioClock};
use tower_ratelimit_client::{Pacer, PacerLayer};

use super::{millis, seconds};

const CLIENTS: usize = 200;
const LIMIT: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Paced,
    /// After a random share of 0.5 s that doubles.
    FullJitter,
    /// That much after the end of `Retry-After`.
    HintAndJitter,
}

struct Dice(u64);

impl Dice {
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Default, Clone)]
struct Tally {
    taken: Vec<u64>,
    refused: u64,
    failed: u64,
}

#[derive(Clone)]
struct Server {
    layer: RateLimitLayer,
    tally: Arc<Mutex<Tally>>,
}

impl Server {
    fn new() -> Self {
        let limiter = LocalLimiter::builder(Quota::per_second(LIMIT)).clock(TokioClock::new());
        Self {
            layer: RateLimitLayer::new(limiter.build().unwrap(), Global),
            tally: Arc::new(Mutex::new(Tally {
                taken: vec![0; CLIENTS],
                ..Tally::default()
            })),
        }
    }

    fn reached_by(
        &self,
        number: usize,
        seed: u64,
    ) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static {
        let server = self.clone();
        let limited = self.layer.layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let dice = Arc::new(Mutex::new(Dice(seed ^ (number as u64) << 20)));
        service_fn(move |request| {
            let (server, limited, dice) = (server.clone(), limited.clone(), Arc::clone(&dice));
            async move {
                let delay = || millis(10) + millis(20).mul_f64(dice.lock().unwrap().fraction());
                sleep(delay()).await;
                let response = limited.oneshot(request).await?;
                {
                    let mut tally = server.tally.lock().unwrap();
                    if response.status() == StatusCode::OK {
                        tally.taken[number] += 1;
                    } else {
                        tally.refused += 1;
                    }
                }
                sleep(delay()).await;
                Ok(response)
            }
        })
    }
}

fn request() -> Request<()> {
    Request::get("https://api.example.com/").body(()).unwrap()
}

async fn run(client: Client, seed: u64) -> Tally {
    let server = Server::new();
    let end = Instant::now() + seconds(60);
    let mut all = Vec::new();
    for number in 0..CLIENTS {
        let reached = server.reached_by(number, seed);
        let pacer = Pacer::learning_builder()
            .clock(TokioClock::new())
            .seed(seed.wrapping_mul(1_000_003) + number as u64)
            .build()
            .unwrap();
        let paced = PacerLayer::new(pacer).layer(reached.clone());
        let server = server.clone();
        let mut dice = Dice(seed ^ ((number * 97) as u64) << 8);
        all.push(tokio::spawn(async move {
            while Instant::now() < end {
                let ok = match client {
                    Client::Paced => {
                        let answer = paced.clone().oneshot(request()).await;
                        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
                    }
                    _ => plain(&reached, client, &mut dice).await,
                };
                if !ok {
                    server.tally.lock().unwrap().failed += 1;
                }
            }
        }));
    }
    for task in all {
        task.await.unwrap();
    }
    server.tally.lock().unwrap().clone()
}

/// Up to ten more attempts within 30 s.
async fn plain<S>(server: &S, client: Client, dice: &mut Dice) -> bool
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
{
    let began = Instant::now();
    for refusals in 0..=10 {
        let Ok(answer) = server.clone().oneshot(request()).await;
        if answer.status() == StatusCode::OK {
            return true;
        }
        let hint = answer.headers().get(RETRY_AFTER);
        let hint = hint.map_or(0, |hint| hint.to_str().unwrap().parse().unwrap());
        let jitter = (millis(500) * (1 << refusals))
            .min(seconds(20))
            .mul_f64(dice.fraction());
        let wait = match client {
            Client::HintAndJitter => seconds(hint) + jitter,
            _ => jitter,
        };
        if began.elapsed() + wait > seconds(30) {
            return false;
        }
        sleep(wait).await;
    }
    false
}

fn jain(taken: &[u64]) -> f64 {
    let sum: f64 = taken.iter().map(|n| *n as f64).sum();
    let squares: f64 = taken.iter().map(|n| (*n as f64).powi(2)).sum();
    sum * sum / (taken.len() as f64 * squares)
}

/// Refusals for each success.
fn refusals(tally: &Tally) -> f64 {
    tally.refused as f64 / tally.taken.iter().sum::<u64>() as f64
}

#[tokio::test(start_paused = true)]
async fn two_hundred_learners_share_more_evenly_than_by_full_jitter() {
    for seed in [1, 2] {
        let paced = run(Client::Paced, seed).await;
        for other in [Client::FullJitter, Client::HintAndJitter] {
            let other = run(other, seed).await;
            assert!(jain(&paced.taken) > jain(&other.taken), "seed {seed}");
            assert!(refusals(&paced) < refusals(&other), "seed {seed}");
            assert!(paced.failed < other.failed, "seed {seed}");
        }
        let least = paced.taken.iter().min();
        assert!(least > Some(&0), "seed {seed}");
        // 0.89 and 0.87, where full jitter has 0.78.
        assert!(jain(&paced.taken) >= 0.85, "seed {seed}");
        // 0.92 and 0.90, where full jitter has 2.4, and with the hint 1.8.
        assert!(refusals(&paced) <= 1.0, "seed {seed}");
        // 19 and 20 of 3,250.
        assert!(paced.failed <= 40, "seed {seed}");
    }
}
