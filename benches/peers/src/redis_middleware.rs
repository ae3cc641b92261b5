//! Requests through an axum router whose limit is shared through Redis.

use std::{sync::Arc, time::Instant};

use http::StatusCode;
use testkit::bench_redis::Server;
use tokio::{runtime, task::JoinSet};
use tower::Service;

mod contenders;

use contenders::routers;

use crate::{
    cpu_time::CpuTime,
    middleware::connect_info,
    rate_conversions::Rate,
    report::{Report, Row, Table},
    rounds::{Samples, rounds},
};

pub const PER_SECOND: &str = "request with a limit shared through Redis, 128 at once";
pub const PROCESSOR: &str = "processor time of the node for it";
pub const OURS: &str = "tower-ratelimit";
pub const TOWER_RATE_LIMITER: &str = "tower-rate-limiter, GCRA";
/// The others, which the summary lists in a table of their own.
pub const OTHERS: [&str; 5] = [
    contenders::TOWER_RATE_LIMIT_REDIS,
    contenders::TOWER_RATE_LIMIT_FRED,
    contenders::AXUM_LIMIT,
    contenders::THROTTLED,
    contenders::TRYPEMA,
];

const ROUNDS: usize = 9;
const AT_ONCE: u32 = 128;

/// Requests in a turn.
const COUNT: u32 = 12_800;

/// Addresses that take turns.
const CLIENTS: u32 = 10_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Contender {
    name: &'static str,
    router: axum::Router,
    per_second: Samples,
    /// Microseconds.
    processor: Samples,
}

/// Does nothing where there is no `redis-server`.
pub fn measure(report: &mut Report) {
    // One thread does all that a node does, so that its processor time is the node's.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match runtime.block_on(measured()) {
        Ok(tables) => tables.into_iter().for_each(|table| report.add(table)),
        Err(error) => println!("\nlimits shared through Redis were not measured: {error}"),
    }
}

async fn measured() -> Outcome<[Table; 2]> {
    let server = Server::start().await?;
    for (name, router) in routers(&server, Rate::FIVE).await? {
        check(name, router).await;
    }
    let mut contenders: Vec<Contender> = (routers(&server, Rate::IN_MILLISECONDS).await?)
        .into_iter()
        .map(Contender::new)
        .collect();
    for round in 0..=rounds(ROUNDS) {
        let all = contenders.len();
        for turn in 0..all {
            contenders[(round + turn) % all].run(round > 0).await;
        }
    }
    let table = |title: &str, unit: &str, samples: fn(&Contender) -> &Samples| Table {
        title: title.to_owned(),
        unit: unit.to_owned(),
        reference: OURS.to_owned(),
        rows: (contenders.iter())
            .map(|contender| Row::new(contender.name, samples(contender).clone()))
            .collect(),
    };
    Ok([
        table(PER_SECOND, "requests/s", |one| &one.per_second),
        table(PROCESSOR, "us", |one| &one.processor),
    ])
}

/// # Panics
///
/// When a layer with [`Rate::FIVE`] allows something else.
async fn check(name: &str, router: axum::Router) {
    let mut passed = 0;
    for _ in 0..10 {
        passed += u32::from(answer(&mut router.clone(), 7).await == StatusCode::OK);
    }
    assert_eq!(
        passed, 5,
        "{name} lets {passed} of 10 pass with a burst of 5"
    );
}

async fn answer(router: &mut axum::Router, client: u32) -> StatusCode {
    let mut request = http::Request::new(axum::body::Body::empty());
    connect_info(request.extensions_mut(), client);
    let Ok(response) = router.call(request).await;
    response.status()
}

impl Contender {
    fn new((name, router): (&'static str, axum::Router)) -> Self {
        Self {
            name,
            router: router.with_state(()),
            per_second: Samples::default(),
            processor: Samples::default(),
        }
    }

    /// # Panics
    ///
    /// When a request is denied, or not decided.
    async fn run(&mut self, counts: bool) {
        let name: Arc<str> = self.name.into();
        let (begin, processor) = (Instant::now(), CpuTime::now());
        let mut tasks = JoinSet::new();
        for task in 0..AT_ONCE {
            let (mut router, name) = (self.router.clone(), Arc::clone(&name));
            tasks.spawn(async move {
                for number in 0..COUNT / AT_ONCE {
                    let client = (task + number * AT_ONCE) % CLIENTS;
                    let status = answer(&mut router, client).await;
                    assert_eq!(status, StatusCode::OK, "{name}");
                }
            });
        }
        tasks.join_all().await;
        let processor = processor.nanos_since() as f64;
        if counts {
            let seconds = begin.elapsed().as_secs_f64();
            self.per_second.0.push(f64::from(COUNT) / seconds);
            self.processor
                .0
                .push(processor / 1_000.0 / f64::from(COUNT));
        }
    }
}
