//! What a limit shared through Redis costs: `cargo bench --bench redis --features redis`.
//!
//! Starts a `redis-server` of its own. Rates are medians of interleaved rounds, so that a busy
//! machine slows both sides of a ratio.

#[path = "redis/server_time.rs"]
mod server_time;

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use server_time::{PLAIN, PLAIN_ARGUMENTS};
use testkit::bench_server::Server;
use tokio::task::JoinSet;
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter, RedisStore, redis::StoreHealth};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const IN_FLIGHT: u64 = 128;
const ROUNDS: usize = 9;
const CALLS: u64 = 20_000;

/// A million a minute, so that nothing is denied.
const fn quota() -> Quota {
    Quota::per_minute(1_000_000)
}

/// Calls a second, with [`IN_FLIGHT`] of them at any time.
async fn rate<F>(call: impl Fn(u64) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    let mut running = JoinSet::new();
    for n in 0..CALLS {
        if n >= IN_FLIGHT {
            running.join_next().await;
        }
        running.spawn(call(n));
    }
    running.join_all().await;
    CALLS as f64 / started.elapsed().as_secs_f64()
}

async fn bare(connection: MultiplexedConnection, script: Arc<redis::Script>, key: String) {
    let mut connection = connection;
    let mut call = script.prepare_invoke();
    call.key(key);
    for argument in PLAIN_ARGUMENTS {
        call.arg(argument);
    }
    let reply: redis::Value = call
        .invoke_async(&mut connection)
        .await
        .expect("Redis is there");
    assert!(matches!(reply, redis::Value::Int(0..)), "{reply:?}");
}

async fn decided(limiter: RedisLimiter, key: Key) {
    let decision = limiter.acquire(&key, 1).await.expect("a decision");
    assert!(decision.is_allowed() && !decision.is_degraded());
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

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::start().await?;
    // A busy machine must not look like a failing server.
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(5))
        .connect(&server.url())?;
    let limiter = RedisLimiter::builder(quota()).name("bench").build(&store)?;
    server_time::print(&server).await?;
    throughput(&server, &limiter).await?;
    denied(&server, &store).await?;
    latency(&server).await
}

async fn throughput(server: &Server, limiter: &RedisLimiter) -> Result<()> {
    let connection = server.connection().await?;
    let script = Arc::new(redis::Script::new(PLAIN));
    let mut rates: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let spread = |n: u64| {
            bare(
                connection.clone(),
                Arc::clone(&script),
                format!("rl:bare:{}", n % 5_000),
            )
        };
        rates[0].push(rate(spread).await);
        rates[1].push(rate(|n| decided(limiter.clone(), Key::from(n % 5_000))).await);
        let hot = |_| {
            bare(
                connection.clone(),
                Arc::clone(&script),
                "rl:bare:hot".to_owned(),
            )
        };
        rates[2].push(rate(hot).await);
        rates[3].push(rate(|_| decided(limiter.clone(), Key::from("hot"))).await);
    }
    let [bare, ours, bare_hot, ours_hot] = rates.map(median);
    println!("{IN_FLIGHT} in flight on one connection, median of {ROUNDS} rounds:");
    println!("  plain GCRA script, 5,000 keys {bare:>9.0}/s");
    println!(
        "  decisions, 5,000 keys         {ours:>9.0}/s  {:.2} of plain (target 1.5)",
        ours / bare
    );
    println!("  plain GCRA script, one hot key{bare_hot:>9.0}/s");
    println!(
        "  decisions, one hot key        {ours_hot:>9.0}/s  {:.1} times plain (target 5)",
        ours_hot / bare_hot
    );
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
