//! Several processes that stay under one third party's limit, through Redis.
//!
//! ```sh
//! redis-server --port 6379 &
//! cargo run -p example-client --bin client_fleet
//! ```
//!
//! This process is the third party, which takes a hundred requests a second and counts what it
//! refuses, and starts eight workers. Each second it prints how many requests of each it took.
//! `REDIS_URL` leads to another Redis, `SECONDS` is how long it runs. Without Redis, as when you stop
//! it meanwhile, each worker keeps to an eighth of the limit.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, extract::Path, middleware, routing::get};
use reqwest::{Client, Method, Request, StatusCode};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt};
use tower_ratelimit::{Global, OnFailure, Quota, RateLimitLayer, RedisLimiter, RedisStore};
use tower_ratelimit_client::{Pacer, PacerLayer};

const WORKERS: u32 = 8;

/// The third party's limit.
const LIMIT: Quota = Quota::per_second(100);

/// The fleet's limit: a rate of its own for requests that go one by one.
const FLEET: Quota = Quota::per_second(80).leaky_bucket(WORKERS as u64);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(url) => work(url).await,
        None => lead().await,
    }
}

/// A process of the fleet.
async fn work(url: String) -> Result<(), Box<dyn Error>> {
    let redis = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let limiter = RedisLimiter::builder(FLEET)
        .name("third-party")
        .on_failure(OnFailure::nodes(WORKERS))
        .build(&RedisStore::connect(&redis)?)?;
    let client = PacerLayer::new(Pacer::new(limiter)).layer(Client::new());
    let end = Instant::now() + seconds();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    let request = Request::new(Method::GET, url.parse().expect("a URL"));
                    if let Err(error) = client.clone().oneshot(request).await {
                        eprintln!("{error}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

fn seconds() -> Duration {
    let seconds = env::var("SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// Counts by worker: taken, refused.
type Counts = Arc<Mutex<BTreeMap<u32, (usize, usize)>>>;

/// Prints the counts of each second.
async fn tell(counts: Counts) {
    let mut before = BTreeMap::new();
    for second in 1.. {
        sleep(Duration::from_secs(1)).await;
        let now = counts.lock().expect("not poisoned").clone();
        let since = |worker| {
            let count = |counts: &BTreeMap<_, _>| counts.get(&worker).copied().unwrap_or((0, 0));
            let (now, before) = (count(&now), count(&before));
            (now.0 - before.0, now.1 - before.1)
        };
        let of_each: Vec<_> = (0..WORKERS).map(since).collect();
        let taken: Vec<_> = of_each.iter().map(|(taken, _)| taken.to_string()).collect();
        let refused: usize = of_each.iter().map(|(_, refused)| refused).sum();
        println!(
            "second {second}: {} times 200, {refused} times 429",
            taken.join(" ")
        );
        before = now;
    }
}

/// The third party, which starts the fleet and prints what it saw.
async fn lead() -> Result<(), Box<dyn Error>> {
    let counts = Counts::default();
    let counted = Arc::clone(&counts);
    let count = middleware::from_fn(
        move |Path(worker): Path<u32>, request: axum::extract::Request, next: middleware::Next| {
            let counted = Arc::clone(&counted);
            async move {
                let response = next.run(request).await;
                let mut counts = counted.lock().expect("not poisoned");
                let (taken, refused) = counts.entry(worker).or_default();
                match response.status() {
                    StatusCode::TOO_MANY_REQUESTS => *refused += 1,
                    _ => *taken += 1,
                }
                drop(counts);
                response
            }
        },
    );
    let app = Router::new()
        .route("/{worker}", get(async || "hello"))
        .layer(RateLimitLayer::new(LIMIT, Global))
        .route_layer(count);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    tokio::spawn(tell(Arc::clone(&counts)));

    let began = Instant::now();
    let workers: Result<Vec<_>, _> = (0..WORKERS)
        .map(|worker| {
            Command::new(env::current_exe()?)
                .arg(format!("{url}/{worker}"))
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .spawn()
        })
        .collect();
    for mut worker in workers? {
        worker.wait().await?;
    }
    let took = began.elapsed().as_secs_f64();
    let counts = counts.lock().expect("not poisoned");
    for (worker, (taken, refused)) in counts.iter() {
        println!("worker {worker}: {taken} times 200, {refused} times 429");
    }
    let (taken, refused) = counts
        .values()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("all: {taken} times 200, {refused} times 429, in {took:.1} s");
    Ok(())
}
