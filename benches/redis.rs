//! Costs of a limit shared through Redis: `cargo bench --bench redis --features redis`.
//!
//! Starts a `redis-server` of its own. Rates are medians of interleaved rounds, so that a busy
//! machine slows both sides of a ratio. Words after `--` select measurements: `server`, `leased`,
//! `client`, `denied`, `latency`, or a row of the client's, such as `"one at a time"`.

#[path = "redis/client_cost.rs"]
mod client_cost;
#[path = "redis/server_time.rs"]
mod server_time;

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use testkit::bench_redis::Server;
use tokio::task::JoinSet;
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter, RedisStore, store::StoreHealth};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A busy machine must not look like a failing server.
const DEADLINE: Duration = Duration::from_secs(5);

/// A million a minute, so that nothing is denied.
const fn quota() -> Quota {
    Quota::per_minute(1_000_000)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The longest of all but one in a hundred.
fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

/// The time of each decision at 2,000 a second.
async fn paced(limiter: &RedisLimiter, seconds: u64) -> Result<Vec<Duration>> {
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut running = JoinSet::new();
    for n in 0..1_000 * seconds {
        tick.tick().await;
        for half in 0..2 {
            let limiter = limiter.clone();
            let key = Key::from(2 * n + half);
            running.spawn(async move {
                let started = Instant::now();
                let decision = limiter.acquire(&key, 1).await;
                decision.map(|_| started.elapsed())
            });
        }
    }
    let times = running.join_all().await.into_iter();
    Ok(times.collect::<Result<_, _>>()?)
}

/// Whether the command line names a measurement, or none.
fn is_selected(measurement: &str) -> bool {
    let mut words = env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .peekable();
    words.peek().is_none() || words.any(|word| measurement.contains(&word))
}

#[tokio::main]
async fn main() -> Result<()> {
    // In a task, as a server's handlers run: the thread of `main` is none of the runtime's.
    tokio::spawn(measure()).await?
}

async fn measure() -> Result<()> {
    let server = Server::start().await?;
    let store = RedisStore::builder()
        .deadline(DEADLINE)
        .connect(&server.url())?;
    if is_selected("server") {
        server_time::print(&server).await?;
    }
    if is_selected("leased") {
        server_time::print_leased(&server).await?;
    }
    client_cost::print(&server, &store).await?;
    if is_selected("denied") {
        denied(&server, &store).await?;
    }
    if is_selected("latency") {
        latency(&server).await?;
    }
    Ok(())
}

async fn denied(server: &Server, store: &RedisStore) -> Result<()> {
    let limiter = RedisLimiter::builder(Quota::per_hour(1))
        .name("denied")
        .build(store)?;
    let key = Key::from("attacker");
    for _ in 0..2 {
        limiter.acquire(&key, 1).await?;
    }
    let before = server.scripts().await?;
    let started = Instant::now();
    for _ in 0..100_000 {
        assert!(limiter.acquire(&key, 1).await?.is_denied());
    }
    let rate = 100_000.0 / started.elapsed().as_secs_f64();
    let commands = server.scripts().await? - before;
    println!("100,000 requests of a denied key: {commands} commands (target 0), {rate:.0}/s");
    Ok(())
}

async fn latency(server: &Server) -> Result<()> {
    let store = RedisStore::connect(&server.url())?;
    let limiter = RedisLimiter::builder(quota())
        .name("latency")
        .on_failure(OnFailure::local());
    let limiter = limiter.build(&store)?;
    paced(&limiter, 1).await?;
    let up = p99(paced(&limiter, 5).await?);
    server.signal("-STOP")?;
    while !matches!(limiter.health(), StoreHealth::Down { .. }) {
        limiter
            .acquire(&Key::from("until it is noticed"), 1)
            .await?;
    }
    let down = p99(paced(&limiter, 5).await?);
    server.signal("-CONT")?;
    let resumed = Instant::now();
    while limiter
        .acquire(&Key::from("until it is back"), 1)
        .await?
        .is_degraded()
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("at 2,000 a second: p99 {up:?} with Redis, {down:?} with Redis stopped (target 1 ms)");
    println!("back after {:?} (target 1 s)", resumed.elapsed());
    Ok(())
}
