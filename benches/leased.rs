//! A leased decision on a hot key beside one of the local limiter, in one run:
//! `cargo bench --features redis --bench leased`.
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]

use std::{
    convert::Infallible,
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use http::{Request, Response};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{
    Decision, Global, Headers, Key, LocalLimiter, Quota, RateLimitLayer,
    limiter::Pending,
    shared::{MemoryStore, Mode, SharedLimiter},
};

const DECISIONS: u32 = 2_000_000;

/// A unit a microsecond. A new bucket has the units of nearly 18 years.
const LASTING: Quota = Quota::per(1 << 49, Duration::from_micros(1 << 49));

/// The time of one decision, of as many on each of some threads of the runtime.
fn time_of(runtime: &Runtime, threads: u32, decide: impl Fn() + Sync) -> Duration {
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _runtime = runtime.enter();
                (0..DECISIONS).for_each(|_| decide());
            });
        }
    });
    began.elapsed() / DECISIONS
}

fn main() {
    let runtime = Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let key = Key::from("tenant");
    let local = LocalLimiter::new(LASTING);
    let builder = SharedLimiter::builder(LASTING).mode(Mode::leased());
    let leased = builder.build_on(MemoryStore::new()).expect("a good quota");
    let request_local = || {
        black_box(local.acquire(&key, 1));
    };
    let request_leased = || match black_box(leased.acquire(&key, 1)) {
        Pending::Ready(answer) => assert!(answer.as_ref().is_ok_and(Decision::is_allowed)),
        Pending::Later(answer) => drop(runtime.block_on(answer)),
    };
    // The demand has to be known first.
    time_of(&runtime, 1, request_leased);
    for threads in [1, 2] {
        let before = leased.mode_stats();
        let [local, leased_time] = [
            time_of(&runtime, threads, request_local),
            time_of(&runtime, threads, request_leased),
        ];
        let stats = leased.mode_stats();
        let requested = stats.asked - before.asked;
        println!(
            "{threads} threads: local {local:?}, leased {leased_time:?} ({:.2} times), of a million \
             decisions the store was asked for {:.1}",
            leased_time.as_secs_f64() / local.as_secs_f64(),
            requested as f64 * 1e6 / f64::from(threads * DECISIONS),
        );
    }
    let layer = RateLimitLayer::new(leased, Global).headers(Headers::none());
    for threads in [1, 2] {
        let time = time_through(&runtime, threads, &layer);
        println!(
            "{threads} threads: {:.2} million requests a second through the layer (target 1)",
            f64::from(threads) / time.as_secs_f64() / 1e6
        );
    }
}

/// The time of one request through the layer, likewise.
fn time_through(
    runtime: &Runtime,
    threads: u32,
    layer: &RateLimitLayer<SharedLimiter<MemoryStore>>,
) -> Duration {
    let answer = async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()));
    let service = layer.layer(service_fn(answer));
    let request = || {
        let mut future = pin!(service.clone().call(Request::new(())));
        let response = match future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(response) => response,
            Poll::Pending => runtime.block_on(future),
        };
        assert!(response.is_ok_and(|response| response.status().is_success()));
    };
    time_of(runtime, threads, request)
}
