//! The client's cost of a decision: the rate and the processor time beside those of a plain GCRA script's calls
//! over the same client.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use testkit::bench_redis::Server;
use tokio::task::JoinSet;
use tower_ratelimit::{Key, Quota, RedisLimiter, RedisStore, quota::IntoQuotas};

use crate::{
    DEADLINE, Result, is_selected, median,
    server_time::{PLAIN, PLAIN_ARGUMENTS},
};

const ROUNDS: usize = 7;

/// The calls of a round.
#[derive(Clone, Copy)]
struct Load {
    calls: u64,
    /// Calls at any time.
    in_flight: u64,
    keys: u64,
}

const MANY: Load = Load {
    calls: 40_000,
    in_flight: 128,
    keys: 5_000,
};

const ONE_KEY: Load = Load { keys: 1, ..MANY };

const ONE_AT_A_TIME: Load = Load {
    calls: 10_000,
    in_flight: 1,
    ..MANY
};

impl Load {
    /// The least rate and the most processor time, as parts of the plain script's.
    const fn targets(self) -> [f64; 2] {
        if self.in_flight == 1 {
            [0.9, 1.15]
        } else {
            [1.5, 1.25]
        }
    }
}

/// Figures of each round.
#[derive(Default)]
struct Figures {
    /// Calls or decisions a second.
    rates: Vec<f64>,
    /// Microseconds of processor time of this process, for each.
    processor: Vec<f64>,
}

impl Figures {
    async fn round<F>(&mut self, load: Load, call: impl Fn(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (started, before) = (Instant::now(), processor_time());
        let mut running = JoinSet::new();
        for n in 0..load.calls {
            if n >= load.in_flight {
                running.join_next().await;
            }
            running.spawn(call(n % load.keys));
        }
        running.join_all().await;
        let calls = load.calls as f64;
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
    println!("the client over one connection, 128 in flight, medians of {ROUNDS} rounds:");
    let minute = Quota::per_minute(1_000_000);
    let hour = Quota::per_hour(60_000_000).named("hour");
    let named = minute.named("minute");
    let log = Quota::per_second(1_000).sliding_log();
    let bench = Bench { server, store };
    bench.row("token bucket", minute, MANY).await?;
    bench
        .row("fixed window", minute.fixed_window(), MANY)
        .await?;
    bench
        .row("sliding window", minute.sliding_window(), MANY)
        .await?;
    bench
        .row("6 slices", minute.sliding_window().slices(6), MANY)
        .await?;
    bench
        .row("bucket and window", [named, hour.fixed_window()], MANY)
        .await?;
    bench.row("two token buckets", [named, hour], MANY).await?;
    bench.row("sliding log", log, MANY).await?;
    bench.row("one hot key", minute, ONE_KEY).await?;
    bench.row("one at a time", minute, ONE_AT_A_TIME).await?;
    // Without the store's own thread: the connection is a task of the callers' runtime.
    let builder = RedisStore::builder().deadline(DEADLINE).prefix("given");
    let store = builder.connection(server.connection().await?)?;
    let bench = Bench {
        store: &store,
        ..bench
    };
    bench
        .row("token bucket, given connection", minute, MANY)
        .await?;
    bench
        .row("one at a time, given connection", minute, ONE_AT_A_TIME)
        .await
}

struct Bench<'a> {
    server: &'a Server,
    store: &'a RedisStore,
}

impl Bench<'_> {
    async fn row(&self, name: &str, quotas: impl IntoQuotas, load: Load) -> Result<()> {
        if !is_selected(&format!("client: {name}")) {
            return Ok(());
        }
        let builder = RedisLimiter::builder(quotas).name(name.replace([' ', ','], "-"));
        let limiter = builder.build(self.store)?;
        let script = Arc::new(redis::Script::new(PLAIN));
        let mut connection = self.server.connection().await?;
        // A busy machine must not look like a failing server here either.
        connection.set_response_timeout(DEADLINE);
        let (mut bare, mut ours) = (Figures::default(), Figures::default());
        let mut calls = 0;
        for _ in 0..ROUNDS {
            let call = |key| plain(connection.clone(), Arc::clone(&script), key);
            bare.round(load, call).await;
            let before = self.server.scripts().await?;
            ours.round(load, |key| decided(limiter.clone(), key)).await;
            calls += self.server.scripts().await? - before;
        }
        let [rate, plain_rate] = [ours.rates, bare.rates].map(median);
        let [processor, plain_processor] = [ours.processor, bare.processor].map(median);
        let [target, most_processor] = load.targets();
        println!(
            "  {name:<32} {rate:>8.0}/s, plain {plain_rate:>7.0}/s: {:.2} (target {target}); \
             {processor:.1} us of processor time, plain {plain_processor:.1}: {:.2} (target {most_processor}); \
             {:.1} decisions a call",
            rate / plain_rate,
            processor / plain_processor,
            (ROUNDS as u64 * load.calls) as f64 / calls as f64,
        );
        Ok(())
    }
}
