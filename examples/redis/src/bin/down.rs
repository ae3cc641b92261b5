//! Redis dies and comes back, and requests notice nothing but who decides.
//!
//! ```sh
//! cargo run --release -p example-redis --bin down
//! ```
//!
//! Starts a `redis-server` of its own, calls the limiter 500 times a second, kills the server after
//! two seconds, starts it again two seconds later, and prints a line for each half second.

use std::{
    error::Error,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::MissedTickBehavior};
use tower_ratelimit::{Decision, Key, LimiterError, OnFailure, Quota, RedisLimiter, RedisStore};

/// The fate of the requests of a half second.
#[derive(Default)]
struct Seen {
    by_redis: u32,
    by_this_process: u32,
    denied: u32,
    slowest: Duration,
}

impl Seen {
    fn note(&mut self, decision: &Decision, took: Duration) {
        if decision.is_degraded() {
            self.by_this_process += 1
        } else {
            self.by_redis += 1
        }
        self.denied += u32::from(decision.is_denied());
        self.slowest = self.slowest.max(took);
    }
}

fn start_redis(port: u16) -> Result<Child, Box<dyn Error>> {
    let server = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--save", ""])
        .stdout(Stdio::null())
        .spawn();
    Ok(server.map_err(|error| format!("this example needs redis-server: {error}"))?)
}

async fn ask(limiter: RedisLimiter, key: Key) -> Result<(Decision, Duration), LimiterError> {
    let started = Instant::now();
    let decision = limiter.acquire(&key, 1).await?;
    Ok((decision, started.elapsed()))
}

/// Half a second of requests of fifty clients, one every two milliseconds.
async fn half_second(limiter: &RedisLimiter) -> Result<Seen, Box<dyn Error>> {
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut requests = JoinSet::new();
    for client in 0..250 {
        tick.tick().await;
        requests.spawn(ask(limiter.clone(), Key::from(client % 50)));
    }
    let mut seen = Seen::default();
    for answer in requests.join_all().await {
        let (decision, took) = answer?;
        seen.note(&decision, took);
    }
    Ok(seen)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let store = RedisStore::builder()
        .on_health_change(|health| {
            let news = if health.is_down() {
                "is not asked any more"
            } else {
                "works again"
            };
            println!("        Redis {news}");
        })
        .connect(&format!("redis://127.0.0.1:{port}"))?;
    let limiter = RedisLimiter::builder(Quota::per_second(20).burst(40))
        .on_failure(OnFailure::local())
        .build(&store)?;

    println!("   time  by Redis  by this process  denied  slowest");
    let mut server = start_redis(port)?;
    for step in 0..16 {
        match step {
            4 => {
                server.kill()?;
                server.wait()?;
                println!("        killed");
            }
            8 => {
                server = start_redis(port)?;
                println!("        started again");
            }
            _ => {}
        }
        let seen = half_second(&limiter).await?;
        println!(
            "{:>5.1} s  {:>8}  {:>15}  {:>6}  {:?}",
            f64::from(step) / 2.0,
            seen.by_redis,
            seen.by_this_process,
            seen.denied,
            seen.slowest
        );
    }
    server.kill()?;
    server.wait()?;
    Ok(())
}
