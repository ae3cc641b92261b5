//! A load on a limiter, with every request timed and classified.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tower_ratelimit::{
    Decision, Key, LimiterError, RedisLimiter,
    store::{StoreError, StoreErrorKind},
};

/// Between two requests of one task: the machine has others to run, too.
const PAUSE: Duration = Duration::from_millis(4);

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Redis let it pass.
    Allowed,
    /// Redis denied it.
    Denied,
    /// Redis did not decide, and what stands in let it pass.
    DegradedAllowed,
    /// Redis did not decide, and what stands in denied it.
    DegradedDenied,
    /// Nobody decided.
    Failed(StoreErrorKind),
}

impl Answer {
    pub(super) fn of(outcome: &Result<Decision, LimiterError>) -> Self {
        match outcome {
            Ok(decision) => match (decision.is_degraded(), decision.is_allowed()) {
                (false, true) => Self::Allowed,
                (false, false) => Self::Denied,
                (true, true) => Self::DegradedAllowed,
                (true, false) => Self::DegradedDenied,
            },
            Err(error) => Self::Failed(cause(error)),
        }
    }

    /// Whether Redis decided.
    pub(super) const fn is_from_redis(self) -> bool {
        matches!(self, Self::Allowed | Self::Denied)
    }
}

/// Why Redis did not decide.
pub(super) fn cause(error: &LimiterError) -> StoreErrorKind {
    let source = error.source().and_then(|source| source.downcast_ref());
    let source: &StoreError = source.unwrap_or_else(|| panic!("{error} has another source"));
    source.kind()
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) requested_at: Instant,
    pub(super) latency: Duration,
    pub(super) answer: Answer,
}

/// Takes one unit from a limiter and returns the outcome.
pub(super) async fn sample(limiter: &RedisLimiter, key: &Key) -> Sample {
    let requested_at = Instant::now();
    let outcome = limiter.acquire(key, 1).await;
    Sample {
        requested_at,
        latency: requested_at.elapsed(),
        answer: Answer::of(&outcome),
    }
}

/// Tasks that take one unit after another, until [`stop`](Self::stop).
#[derive(Debug)]
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Sample>>,
}

impl Load {
    /// Starts so many tasks. All use all keys, one after another.
    pub(super) fn start(limiter: &RedisLimiter, tasks: usize, keys: &[Key]) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            tasks: JoinSet::new(),
        };
        for task in 0..tasks {
            let (limiter, stop) = (limiter.clone(), Arc::clone(&load.stop));
            let mut keys = keys.to_vec();
            let first = task % keys.len();
            keys.rotate_left(first);
            load.tasks.spawn(async move {
                let mut samples = Vec::new();
                for key in keys.iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    samples.push(sample(&limiter, key).await);
                    tokio::time::sleep(PAUSE).await;
                }
                samples
            });
        }
        load
    }

    /// All samples, in order of time.
    ///
    /// # Panics
    ///
    /// If a request did.
    pub(super) async fn stop(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        let mut samples = self.tasks.join_all().await.concat();
        samples.sort_by_key(|sample| sample.requested_at);
        samples
    }
}

/// How many of the answers are this one.
pub(super) fn count(samples: &[Sample], answer: Answer) -> u64 {
    let alike = samples.iter().filter(|sample| sample.answer == answer);
    alike.count() as u64
}

/// How many requests Redis did not decide about.
pub(super) fn undecided(samples: &[Sample]) -> u64 {
    let undecided = |sample: &&Sample| !sample.answer.is_from_redis();
    samples.iter().filter(undecided).count() as u64
}

/// The longest time and the 99th percentile, for the reader.
pub(super) fn times(samples: &[Sample]) -> String {
    let mut times: Vec<_> = samples.iter().map(|sample| sample.latency).collect();
    times.sort();
    let Some(longest) = times.last() else {
        return "no requests".to_owned();
    };
    let percentile = times[times.len() * 99 / 100];
    format!(
        "{} requests, p99 {percentile:?}, max {longest:?}",
        times.len()
    )
}
