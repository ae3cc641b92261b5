//! Services, requests, vectors, oracles and servers that tests, benches and fuzz targets share.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    reason = "it is not published, and what panics has failed"
)]

#[cfg(feature = "servers")]
pub mod bench_redis;
#[cfg(all(target_os = "linux", feature = "browser"))]
pub mod browser;
pub mod charge_vectors;
#[cfg(all(target_os = "linux", feature = "servers"))]
pub mod child_processes;
pub mod decision_vectors;
#[cfg(feature = "servers")]
pub mod fake_redis;
pub mod fuzz;
#[cfg(feature = "pipe")]
pub mod in_memory_connection;
pub mod llm;
pub mod network_delay;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod random_keys;
#[cfg(all(target_os = "linux", feature = "servers"))]
pub mod servers;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod store_contract;
pub mod tokio_paused_clock;
pub mod vector_files;
pub mod wall_clock_jumps;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tower::{Service, ServiceExt, service_fn};
use tower_ratelimit::{
    AsyncLimiter, Decision, Key, Limiter, LimiterError, LocalLimiter, Priority,
    clock::ManualClock,
    decision::{Op, Policy},
    limiter::{Call, Charge, Pending, Tier},
    quota::IntoQuotas,
};

/// A period for windows that do not end while a test runs: there is one from 2023 until 2041. Those of a day end at
/// midnight.
pub const AGE: Duration = Duration::from_secs(6_570 * 86_400);

/// A local limiter whose time stands still.
pub fn limiter(quotas: impl IntoQuotas) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(quotas)
        .max_keys(1_000)
        .clock(clock.clone())
        .build()
        .expect("a quota that makes sense");
    (limiter, clock)
}

/// Applies an operation to a key by the quotas of a tier.
pub fn apply_in<L: Limiter>(limiter: &L, tier: &Tier, key: &Key, op: Op) -> Pending<L::Future> {
    apply_in_class(limiter, (tier, Priority::CRITICAL), key, op)
}

/// Applies an operation to a key by the quotas of a tier, for a request of a class.
#[expect(
    clippy::needless_pass_by_value,
    reason = "tests make the operation in its place"
)]
pub fn apply_in_class<L: Limiter>(
    limiter: &L,
    (tier, class): (&Tier, Priority),
    key: &Key,
    op: Op,
) -> Pending<L::Future> {
    let charge = Charge::new(key, op.as_ref()).tier(tier).class(class);
    limiter.call(&Call::of(&[charge]))
}

/// Applies operations to several limits, each to its key: the only operation to all, or one to each.
pub fn apply_each<L: Limiter>(
    limiter: &L,
    (tier, class): (&Tier, Priority),
    keys: &[Key],
    ops: &[Op],
) -> Pending<L::Future> {
    let charges = keys.iter().enumerate().map(|(limit, key)| {
        let op = if let [only] = ops { only } else { &ops[limit] };
        let charge = Charge::new(key, op.as_ref()).limit(limit);
        charge.tier(tier).class(class)
    });
    limiter.call(&Call::of(&charges.collect::<Vec<_>>()))
}

/// Polls a future that never has to wait.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Sends an empty request with a `String` body.
pub fn send<S, B>(service: &S, request: http::request::Builder) -> Response<B>
where
    S: Service<Request<String>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
{
    let request = request.body(String::new()).expect("a request");
    now(service.clone().oneshot(request)).expect("a response")
}

pub fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}

/// A response's field as text, `None` when it is absent.
pub fn field<'r, B>(response: &'r Response<B>, name: &str) -> Option<&'r str> {
    let value = response.headers().get(name)?;
    Some(value.to_str().expect("an ASCII field"))
}

/// All lines of a field.
pub fn fields<'r, B>(response: &'r Response<B>, name: &str) -> Vec<&'r str> {
    let lines = response.headers().get_all(name).iter();
    lines
        .map(|line| line.to_str().expect("an ASCII field"))
        .collect()
}

/// Answers 200 `inner`, counts its calls, and panics when an instance is called that was not
/// polled ready.
#[derive(Debug, Default)]
pub struct Probe {
    pub calls: Arc<AtomicUsize>,
    ready: bool,
}

impl Clone for Probe {
    /// A clone is not ready, as `tower::Service` has it.
    fn clone(&self) -> Self {
        Self {
            calls: Arc::clone(&self.calls),
            ready: false,
        }
    }
}

impl Probe {
    pub fn count(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl<B> Service<Request<B>> for Probe {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(self.ready, "called an instance that was not polled ready");
        self.ready = false;
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new("inner".to_owned())))
    }
}

/// A limiter behind an `async fn`, which waits until the test lets it answer.
pub struct Slow {
    pub limiter: LocalLimiter,
    pub gate: Arc<tokio::sync::Semaphore>,
}

impl AsyncLimiter for Slow {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        let permit = self
            .gate
            .acquire()
            .await
            .map_err(LimiterError::unavailable)?;
        permit.forget();
        use tower_ratelimit::Limiter as _;
        self.limiter.apply(key, op).await
    }

    fn policies(&self) -> &[Policy] {
        use tower_ratelimit::Limiter as _;
        self.limiter.policies()
    }
}

/// Collects lines, for observers and subscribers.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub fn push(&self, line: String) {
        self.0.lock().expect("not poisoned").push(line);
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

/// The lines that this thread logs meanwhile, one for each event.
pub fn logged(run: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(log.clone())
        .finish();
    logged_to(subscriber, run);
    log.0.take()
}

/// Hands what this thread logs meanwhile to `subscriber`.
pub fn logged_to<R>(
    subscriber: impl tracing::Subscriber + Send + Sync + 'static,
    run: impl FnOnce() -> R,
) -> R {
    // With one subscriber alone, tracing lets it alone decide about a place that logs: one that a thread without a subscriber
    // reaches first would be off for all threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, run)
}

#[derive(Clone, Default)]
struct Log(Lines);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.push(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Answers with the status that the path names.
pub fn answering()
-> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |request: Request<String>| {
        let status = request.uri().path().trim_start_matches('/').parse::<u16>();
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::from_u16(status.unwrap_or(200)).expect("a status");
        Ok(response)
    })
}

#[cfg(test)]
mod tests {
    /// A store may report on a thread of its own first.
    #[test]
    fn a_line_that_another_thread_logged_first_is_logged_here_too() {
        let report = || tracing::warn!("a line");
        let lines = super::logged(|| {
            std::thread::scope(|scope| scope.spawn(report).join()).expect("no panic");
            report();
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}
