//! What a decision through Redis costs its client: `cargo bench --bench redis_client --features redis`.
//!
//! Starts a `redis-server` of its own. A plain GCRA script, asked over the same client, is the yardstick. Figures are
//! medians of interleaved rounds, so that a busy machine slows both sides of a ratio.

use std::{
    error::Error,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use testkit::bench_server::Server;
use tokio::task::JoinSet;
use tower_ratelimit::{Key, Quota, RedisLimiter, RedisStore};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const IN_FLIGHT: u64 = 128;
const ROUNDS: usize = 7;
const CALLS: u64 = 40_000;
const KEYS: u64 = 5_000;

/// The least that a script can do for a token bucket: one number, microseconds, an integer for an answer.
const PLAIN: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full_at = tonumber(redis.call('GET', KEYS[1])) or now
if full_at < now then full_at = now end
local level = full_at + ARGV[1] * ARGV[3] - now
if level > tonumber(ARGV[2]) then return ARGV[2] - level end
redis.call('SET', KEYS[1], string.format('%.0f', now + level), 'PX', math.ceil(level / 1000))
return level
";

#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Decisions a second.
    rate: f64,
    /// Microseconds of processor time of this process, for each.
    processor: f64,
}

/// The time that this process has had of processors.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_millis(10 * ticks)
}

async fn cost<F>(call: impl Fn(u64) -> F) -> Cost
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
    Cost {
        rate: CALLS as f64 / started.elapsed().as_secs_f64(),
        processor: (processor_time() - before).as_secs_f64() * 1e6 / CALLS as f64,
    }
}

async fn plain(mut connection: MultiplexedConnection, script: Arc<redis::Script>, key: u64) {
    let mut call = script.prepare_invoke();
    call.key(format!("rl:plain:{key}"))
        .arg(60)
        .arg(60_000_000)
        .arg(1);
    let level: i64 = call
        .invoke_async(&mut connection)
        .await
        .expect("Redis is there");
    assert!(level > 0);
}

async fn decided(limiter: RedisLimiter, key: u64) {
    let decision = limiter
        .acquire(&Key::from(key), 1)
        .await
        .expect("a decision");
    assert!(decision.is_allowed() && !decision.is_degraded());
}

fn median(costs: &[Cost], figure: fn(&Cost) -> f64) -> f64 {
    let mut figures: Vec<_> = costs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::start().await?;
    // A busy machine must not look like a failing server.
    let store = RedisStore::builder().deadline(Duration::from_secs(5));
    let store = store.connect(&server.url())?;
    let kinds = [
        ("token bucket", Quota::per_minute(1_000_000)),
        ("fixed window", Quota::per_minute(1_000_000).fixed_window()),
        (
            "sliding window",
            Quota::per_minute(1_000_000).sliding_window(),
        ),
    ];
    let script = Arc::new(redis::Script::new(PLAIN));
    let connection = server.connection().await?;
    for (name, quota) in kinds {
        let limiter = RedisLimiter::builder(quota)
            .name(name.replace(' ', "-"))
            .build(&store)?;
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        let scripts = server.scripts().await?;
        for _ in 0..ROUNDS {
            bare.push(cost(|n| plain(connection.clone(), Arc::clone(&script), n % KEYS)).await);
            ours.push(cost(|n| decided(limiter.clone(), n % KEYS)).await);
        }
        let calls = server.scripts().await? - scripts - ROUNDS as u64 * CALLS;
        let (rate, processor): (fn(&Cost) -> f64, fn(&Cost) -> f64) =
            (|cost| cost.rate, |cost| cost.processor);
        println!(
            "{name}: {:.0}/s, plain {:.0}/s: {:.2} of it; {:.2} us of the client's processor, plain {:.2}: {:.2} times; {:.1} decisions a call",
            median(&ours, rate),
            median(&bare, rate),
            median(&ours, rate) / median(&bare, rate),
            median(&ours, processor),
            median(&bare, processor),
            median(&ours, processor) / median(&bare, processor),
            (ROUNDS as u64 * CALLS) as f64 / calls as f64,
        );
    }
    Ok(())
}
