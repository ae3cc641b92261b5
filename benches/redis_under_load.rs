//! The fate of requests when Redis is far, busy, or called by many at once:
//! `cargo bench --bench redis_under_load --features redis`.
//!
//! Starts `redis-server`s of its own, and puts them at a distance by a proxy that delays. Prints the
//! table of the guide's page on Redis.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    error::Error,
    time::{Duration, Instant},
};

use http::{Request, Response};
use testkit::{bench_redis::Server, network_delay::RoundTrip};
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, Decision, Key, LimiterError, Quota, RedisLimiter, RedisStore,
    concurrency::SharedConcurrency,
    decision::{Degradation, Op},
    key::key_fn,
    limiter::Tier,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const ROUND_TRIPS: [u64; 5] = [0, 5, 20, 30, 40];

/// How long the steady scenarios last.
const SECONDS: usize = 2;

/// One request: what was decided, and how long it took.
type Sample = (Result<Decision, LimiterError>, Duration);

/// The outcome of a scenario.
#[derive(Default)]
struct Seen {
    requests: usize,
    by_reason: BTreeMap<&'static str, usize>,
    longest: Duration,
    over: u64,
}

impl Seen {
    fn of(samples: Vec<Sample>, limit: u64) -> Result<Self> {
        let mut seen = Self {
            requests: samples.len(),
            ..Self::default()
        };
        let mut allowed = 0;
        for (decision, took) in samples {
            let decision = decision?;
            if let Some(reason) = decision.degraded_by() {
                *seen.by_reason.entry(reason.as_str()).or_default() += 1;
            }
            allowed += u64::from(decision.is_allowed());
            seen.longest = seen.longest.max(took);
        }
        seen.over = allowed.saturating_sub(limit);
        Ok(seen)
    }
}

/// A server at a distance, and the store that leads to it.
struct Bed {
    server: Server,
    round_trip: RoundTrip,
    store: RedisStore,
}

impl Bed {
    async fn new(round_trip: Duration) -> Result<Self> {
        let server = Server::start().await?;
        let round_trip = RoundTrip::new(round_trip);
        let port = testkit::network_delay::distant(server.port(), &round_trip)?;
        let store = RedisStore::connect(&format!("redis://127.0.0.1:{port}"))?;
        Ok(Self {
            server,
            round_trip,
            store,
        })
    }

    async fn limiter(&self, quota: Quota) -> Result<RedisLimiter> {
        let builder = RedisLimiter::builder(quota).tier("b", quota);
        let limiter = builder.remember_denials(false).build(&self.store)?;
        self.connected().await;
        Ok(limiter)
    }

    /// As a readiness probe does it. Near the deadline some fail.
    async fn connected(&self) {
        while self.store.check().await.is_err() {}
    }

    /// Prints a line of the table, and whether the store's statistics agree.
    async fn report(self, what: &str, round_trip: Duration, seen: &Seen) -> Result<()> {
        let stats = self.store.stats();
        let reported: BTreeMap<_, _> = stats
            .degraded_by_reason()
            .map(|(reason, count)| (reason.as_str(), count as usize))
            .collect();
        let same = if reported == seen.by_reason {
            "yes"
        } else {
            "no"
        };
        let share = |reason: Degradation| {
            let count = seen.by_reason.get(reason.as_str()).copied();
            let share = count.unwrap_or_default() as f64 * 100.0 / seen.requests as f64;
            format!("{share:.1}")
        };
        println!(
            "| {} ms | {what} | {} | {} | {} | {} | {:.0} ms | {} | {} | {} | {same} |",
            round_trip.as_millis(),
            share(Degradation::Crowded),
            share(Degradation::TimedOut),
            share(Degradation::GivenUp),
            share(Degradation::Failed),
            seen.longest.as_secs_f64() * 1e3,
            stats.breaker_openings(),
            self.server.loads().await?,
            seen.over,
        );
        Ok(())
    }
}

async fn decide(limiter: RedisLimiter, tier: Tier, key: Key) -> Sample {
    let began = Instant::now();
    let decision = testkit::apply_in(&limiter, &tier, &key, Op::Acquire(1)).await;
    (decision, began.elapsed())
}

/// A number of requests of one key each second, in the tiers by turns.
async fn steady(bed: &Bed, per_second: usize, tiers: &[Tier]) -> Result<Seen> {
    let limit = (per_second * SECONDS / 2) as u64;
    let limiter = bed.limiter(Quota::per_day(limit).fixed_window()).await?;
    hot(&limiter, per_second, tiers, limit).await
}

/// Measures after a thousand answers at 1 ms: the way becomes long while the node runs.
async fn becoming_far(bed: &Bed, per_second: usize, round_trip: Duration) -> Result<Seen> {
    let limit = (per_second * SECONDS) as u64;
    let limiter = bed.limiter(Quota::per_day(limit).fixed_window()).await?;
    for _ in 0..1_000 {
        decide(limiter.clone(), Tier::DEFAULT, Key::from("near"))
            .await
            .0?;
    }
    bed.round_trip.set(round_trip);
    hot(&limiter, per_second, &[Tier::DEFAULT], limit).await
}

async fn hot(
    limiter: &RedisLimiter,
    per_second: usize,
    tiers: &[Tier],
    limit: u64,
) -> Result<Seen> {
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    for at in 0..1_000 * SECONDS {
        tick.tick().await;
        for one in 0..per_second / 1_000 {
            let tier = tiers[(at + one) % tiers.len()].clone();
            running.spawn(decide(limiter.clone(), tier, Key::from("hot")));
        }
    }
    Seen::of(running.join_all().await, limit)
}

/// A number of subjects at one moment that nobody has seen before.
async fn herd(bed: &Bed, subjects: u64) -> Result<Seen> {
    let limiter = bed.limiter(Quota::per_minute(1)).await?;
    let mut running = JoinSet::new();
    for key in 0..subjects {
        running.spawn(decide(limiter.clone(), Tier::DEFAULT, Key::from(key)));
    }
    Seen::of(running.join_all().await, subjects)
}

/// Long responses that hold all permits of a key, beside 500 short ones of others each second: over
/// is what another node gets of the permits that are taken.
async fn leases(bed: &Bed) -> Result<Seen> {
    const LEASE: Duration = Duration::from_secs(1);
    const LIMIT: u64 = 10;
    let node = |store: &RedisStore| {
        let shared = SharedConcurrency::new(store, Concurrency::max(LIMIT)).lease(LEASE);
        let by_path = key_fn(|parts| Key::from(parts.uri.path()));
        let layer = ConcurrencyLayer::new(shared, by_path);
        layer.layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new("a body that is read to its end".to_owned()))
        }))
    };
    let node_here = node(&bed.store);
    bed.connected().await;
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        held.push(send(node_here.clone(), "/long".to_owned()).await.0);
    }
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    for at in 0..500 * 3 {
        tick.tick().await;
        let send = send(node_here.clone(), format!("/short/{}", at % 100));
        running.spawn(async move { send.await.1 });
    }
    let longest = running.join_all().await.into_iter().max();
    let elsewhere = node(&RedisStore::connect(&bed.server.url())?);
    let mut over = 0;
    for _ in 0..LIMIT {
        let (response, _) = send(elsewhere.clone(), "/long".to_owned()).await;
        over += u64::from(response.status().is_success());
        held.push(response);
    }
    let stats = bed.store.stats();
    let by_reason = stats.degraded_by_reason();
    Ok(Seen {
        requests: 500 * 3,
        by_reason: by_reason
            .map(|(reason, count)| (reason.as_str(), count as usize))
            .collect(),
        longest: longest.unwrap_or_default(),
        over,
    })
}

async fn send<S, B>(service: S, path: String) -> (Response<B>, Duration)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible>,
{
    let began = Instant::now();
    let request = Request::get(path).body(String::new());
    let request = request.expect("a path that is one");
    match service.oneshot(request).await {
        Ok(response) => (response, began.elapsed()),
        Err(never) => match never {},
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    println!(
        "| round trip | what | crowded, % | timed out, % | given up, % | failed, % | longest wait \
         | openings | script loads | over | `stats()` |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for round_trip in ROUND_TRIPS.map(Duration::from_millis) {
        for per_second in [2_000, 16_000] {
            let bed = Bed::new(round_trip).await?;
            let seen = steady(&bed, per_second, &[Tier::DEFAULT]).await?;
            let what = format!("one key, {per_second}/s");
            bed.report(&what, round_trip, &seen).await?;
        }
        for per_second in [2_000, 16_000] {
            let bed = Bed::new(Duration::from_millis(1)).await?;
            let seen = becoming_far(&bed, per_second, round_trip).await?;
            let what = format!("one key, {per_second}/s, 1 ms away until then");
            bed.report(&what, round_trip, &seen).await?;
        }
        let bed = Bed::new(round_trip).await?;
        let seen = steady(&bed, 1_000, &[Tier::DEFAULT, Tier::named("b")]).await?;
        bed.report("one key, two tiers by turns, 1000/s", round_trip, &seen)
            .await?;
        for subjects in [1_000, 5_000, 10_000] {
            let bed = Bed::new(round_trip).await?;
            let seen = herd(&bed, subjects).await?;
            let what = format!("{subjects} new subjects at once");
            bed.report(&what, round_trip, &seen).await?;
        }
        let bed = Bed::new(round_trip).await?;
        let seen = leases(&bed).await?;
        bed.report("leases, 500 short responses/s", round_trip, &seen)
            .await?;
    }
    Ok(())
}
