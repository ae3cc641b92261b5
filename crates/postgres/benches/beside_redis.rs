//! Decisions a second of one limit in Postgres beside the same limit in Redis, strict and leased:
//! `cargo bench -p tower-ratelimit-postgres`.
//!
//! Starts both servers on this machine. Rates are medians of interleaved rounds, so that a busy machine
//! slows both sides of a ratio.
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[cfg(target_os = "linux")]
#[tokio::main]
async fn main() -> Result<()> {
    beside_redis::measure().await
}

#[cfg(target_os = "linux")]
mod beside_redis {
    use std::time::{Duration, Instant};

    use testkit::{bench_redis::Server, servers::Postgres};
    use tokio::task::JoinSet;
    use tower_ratelimit::{
        AnyLimiter, Key, OnFailure, Quota, RedisLimiter, RedisStore,
        shared::{Mode, SharedLimiter},
    };
    use tower_ratelimit_postgres::PostgresStore;

    use super::Result;

    const ROUNDS: usize = 5;
    /// A busy machine must not look like a failing server.
    const DEADLINE: Duration = Duration::from_secs(5);
    /// Nothing is denied.
    const QUOTA: Quota = Quota::per_second(1_000_000);

    struct Load {
        name: &'static str,
        mode: Mode,
        decisions: u64,
        in_flight: u64,
        keys: u64,
    }

    pub(super) async fn measure() -> Result<()> {
        let strict = Load {
            name: "strict, 64 at once on 1,000 keys",
            mode: Mode::strict(),
            decisions: 10_000,
            in_flight: 64,
            keys: 1_000,
        };
        let loads = [
            Load {
                name: "strict, one at a time",
                in_flight: 1,
                decisions: 2_000,
                ..strict
            },
            Load {
                name: "strict, 64 at once on one key",
                keys: 1,
                decisions: 50_000,
                ..strict
            },
            Load {
                name: "leased, 64 at once on one key",
                mode: Mode::leased(),
                keys: 1,
                decisions: 500_000,
                ..strict
            },
            strict,
        ];
        let redis = Server::start().await?;
        let postgres = Postgres::start().await;
        for load in &loads {
            let [mut of_redis, mut of_postgres] = [Vec::new(), Vec::new()];
            let limiters = [
                redis_limiter(&redis, load)?,
                postgres_limiter(&postgres, load).await?,
            ];
            for limiter in &limiters {
                rate(limiter, load).await?;
            }
            for _ in 0..ROUNDS {
                of_redis.push(rate(&limiters[0], load).await?);
                of_postgres.push(rate(&limiters[1], load).await?);
            }
            let [redis, postgres] = [median(of_redis), median(of_postgres)];
            println!(
                "{}: Postgres {postgres:.0}/s, Redis {redis:.0}/s: {:.2} times",
                load.name,
                postgres / redis
            );
        }
        Ok(())
    }

    fn redis_limiter(server: &Server, load: &Load) -> Result<AnyLimiter> {
        let store = RedisStore::builder()
            .deadline(DEADLINE)
            .connect(&server.url())?;
        let builder = RedisLimiter::builder(QUOTA)
            .mode(load.mode)
            .on_failure(OnFailure::deny());
        Ok(AnyLimiter::new(builder.name(name(load)).build(&store)?))
    }

    async fn postgres_limiter(server: &Postgres, load: &Load) -> Result<AnyLimiter> {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
        let store = PostgresStore::connect(&url)?.deadline(DEADLINE);
        store.create_table().await?;
        let builder = SharedLimiter::builder(QUOTA)
            .mode(load.mode)
            .on_failure(OnFailure::deny());
        Ok(AnyLimiter::new(builder.name(name(load)).build_on(store)?))
    }

    fn name(load: &Load) -> String {
        load.name.replace([' ', ','], "-")
    }

    /// Decisions a second.
    async fn rate(limiter: &AnyLimiter, load: &Load) -> Result<f64> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..load.in_flight {
            let limiter = limiter.clone();
            let (first, step) = (task, load.in_flight);
            let (decisions, keys) = (load.decisions, load.keys);
            tasks.spawn(async move {
                for n in (first..decisions).step_by(step as usize) {
                    limiter.acquire(&Key::from(n % keys), 1).await?;
                }
                Ok::<_, tower_ratelimit::LimiterError>(())
            });
        }
        for outcome in tasks.join_all().await {
            outcome?;
        }
        Ok(load.decisions as f64 / started.elapsed().as_secs_f64())
    }

    fn median(mut rates: Vec<f64>) -> f64 {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }
}
