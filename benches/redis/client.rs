//! What a decision takes the client: its rate and its processor time beside those of a plain GCRA script's calls
//! over the same client.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use testkit::bench_server::Server;
use tokio::task::JoinSet;
use tower_ratelimit::{IntoQuotas, Key, Quota, RedisLimiter, RedisStore};

use crate::{
    Result, median,
    server_time::{PLAIN, PLAIN_ARGUMENTS},
};

const IN_FLIGHT: u64 = 128;
const ROUNDS: usize = 7;
const CALLS: u64 = 40_000;
const KEYS: u64 = 5_000;

/// Figures of each round.
#[derive(Default)]
struct Figures {
    /// Calls or decisions a second.
    rates: Vec<f64>,
    /// Microseconds of processor time of this process, for each.
    processor: Vec<f64>,
}

impl Figures {
    /// So many calls, [`IN_FLIGHT`] of them at any time.
    async fn round<F>(&mut self, call: impl Fn(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (started, before) = (Instant::now(), processor_time());
        let mut running = JoinSet::new();
        for n in 0..CALLS {
            if n >= IN_FLIGHT {
                running.join_next().await;
            }
            running.spawn(call(n));
        }
        running.join_all().await;
        let calls = CALLS as f64;
        self.rates.push(calls / started.elapsed().as_secs_f64());
        let processor = processor_time() - before;
        self.processor.push(processor.as_secs_f64() * 1e6 / calls);
    }
}

/// The time that this process has had of processors, in hundredths of a second.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_millis(10 * ticks)
}

async fn plain(mut connection: MultiplexedConnection, script: Arc<redis::Script>, key: u64) {
    let mut call = script.prepare_invoke();
    call.key(format!("rl:plain:{key}"));
    for argument in PLAIN_ARGUMENTS {
        call.arg(argument);
    }
    let level: i64 = call
        .invoke_async(&mut connection)
        .await
        .expect("Redis is there");
    assert!(level > 0);
}

async fn decided(limiter: RedisLimiter, key: u64) {
    let decision = limiter.acquire(&Key::from(key), 1).await;
    let decision = decision.expect("a decision");
    assert!(decision.is_allowed() && !decision.is_degraded());
}

pub(crate) async fn print(server: &Server, store: &RedisStore) -> Result<()> {
    println!("the client, {IN_FLIGHT} under way over one connection, medians of {ROUNDS} rounds:");
    let many = || Quota::per_minute(1_000_000);
    row(server, store, "token bucket", many(), KEYS).await?;
    row(server, store, "fixed window", many().fixed_window(), KEYS).await?;
    row(
        server,
        store,
        "sliding window",
        many().sliding_window(),
        KEYS,
    )
    .await?;
    let two = [
        many().named("minute"),
        Quota::per_hour(60_000_000).named("hour"),
    ];
    row(server, store, "two token buckets", two, KEYS).await?;
    row(
        server,
        store,
        "sliding log",
        Quota::per_second(1_000).sliding_log(),
        KEYS,
    )
    .await?;
    row(server, store, "one hot key", many(), 1).await
}

async fn row(
    server: &Server,
    store: &RedisStore,
    name: &str,
    quotas: impl IntoQuotas,
    keys: u64,
) -> Result<()> {
    let builder = RedisLimiter::builder(quotas).name(name.replace(' ', "-"));
    let limiter = builder.build(store)?;
    let script = Arc::new(redis::Script::new(PLAIN));
    let connection = server.connection().await?;
    let (mut bare, mut ours) = (Figures::default(), Figures::default());
    let mut calls = 0;
    for _ in 0..ROUNDS {
        let call = |n| plain(connection.clone(), Arc::clone(&script), n % keys);
        bare.round(call).await;
        let before = server.scripts().await?;
        ours.round(|n| decided(limiter.clone(), n % keys)).await;
        calls += server.scripts().await? - before;
    }
    let [rate, plain_rate] = [ours.rates, bare.rates].map(median);
    let [processor, plain_processor] = [ours.processor, bare.processor].map(median);
    println!(
        "  {name:<18} {rate:>8.0}/s, plain {plain_rate:>7.0}/s: {:.2} (target 1.5); \
         {processor:.1} us of processor time, plain {plain_processor:.1}: {:.2} (target 1.25); {:.1} decisions a call",
        rate / plain_rate,
        processor / plain_processor,
        (ROUNDS as u64 * CALLS) as f64 / calls as f64,
    );
    Ok(())
}
