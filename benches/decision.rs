//! Decisions of the local limiter, by algorithm, by how requests spread over keys, and by threads:
//! `cargo bench --bench decision`.
#![allow(missing_docs, reason = "criterion's macros")]

#[allow(unreachable_pub, reason = "another package uses it, too")]
#[path = "common/keys.rs"]
mod keys;

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keys::Spread;
use tower_ratelimit::{Key, LocalLimiter, Quota};

const MILLION: u32 = 1_000_000;

/// Enough for every request of a bench; `denied` has none left.
const ALLOWED: Quota = Quota::per_second(1_000_000).burst(4_000_000_000);
const DENIED: Quota = Quota::per_day(1);

fn spreads() -> [(&'static str, u32, Spread); 4] {
    [
        ("one key", 1, Spread::OneKey),
        ("1 k keys", 1_000, Spread::Uniform(1_000)),
        ("1 M keys", MILLION, Spread::Uniform(MILLION)),
        ("1 M keys by Zipf", MILLION, Spread::zipf(MILLION)),
    ]
}

/// A limiter that has seen so many keys.
fn limiter(quota: Quota, keys: u32) -> LocalLimiter {
    let builder = LocalLimiter::builder(quota).max_keys(MILLION as usize);
    let limiter = builder.build().expect("a good quota and size");
    for number in 0..keys {
        let _ = limiter.acquire(&Key::from(u64::from(number)), 1);
    }
    limiter
}

fn ask(limiter: &LocalLimiter, spread: &Spread, seed: u64, count: u64) {
    for number in spread.numbers(seed).take(count as usize) {
        black_box(
            limiter
                .acquire(&Key::from(u64::from(number)), 1)
                .is_allowed(),
        );
    }
}

/// All threads together need this long for `count` decisions.
fn in_threads(limiter: &LocalLimiter, spread: &Spread, threads: u64, count: u64) -> Duration {
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        let work = |thread| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let begin = Instant::now();
                ask(limiter, spread, thread, count / threads + 1);
                begin.elapsed()
            })
        };
        let running: Vec<_> = (0..threads).map(work).collect();
        let times = running.into_iter().map(|thread| thread.join());
        times
            .map(|time| time.expect("no panic"))
            .max()
            .unwrap_or_default()
    })
}

fn keys_and_threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("allowed");
    group.throughput(Throughput::Elements(1));
    for (name, keys, spread) in spreads() {
        let limiter = limiter(ALLOWED, keys);
        for threads in [1, 2, 8] {
            let id = BenchmarkId::new(name, format!("{threads} threads"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|count| in_threads(&limiter, &spread, threads, count));
            });
        }
    }
    group.finish();
}

fn denied(c: &mut Criterion) {
    let mut group = c.benchmark_group("denied");
    group.throughput(Throughput::Elements(1));
    for (name, keys, spread) in spreads() {
        let limiter = limiter(DENIED, keys);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| in_threads(&limiter, &spread, 1, count));
        });
    }
    group.finish();
}

fn algorithms(c: &mut Criterion) {
    let quota = Quota::per_hour(60_000);
    let mut group = c.benchmark_group("algorithm, 1 k keys");
    group.throughput(Throughput::Elements(1));
    for (name, quota) in [
        ("token bucket", quota),
        ("leaky bucket", quota.leaky_bucket(60_000)),
        ("fixed window", quota.fixed_window()),
        ("sliding window", quota.sliding_window()),
        ("sliding log", Quota::per_second(100).sliding_log()),
        ("two token buckets", quota),
    ] {
        let limiter = if name.starts_with("two") {
            LocalLimiter::new([quota, Quota::per_second(1_000)])
        } else {
            LocalLimiter::new(quota)
        };
        group.bench_function(name, |bencher| {
            let spread = Spread::Uniform(1_000);
            bencher.iter_custom(|count| in_threads(&limiter, &spread, 1, count));
        });
    }
    group.finish();
}

criterion_group!(benches, keys_and_threads, denied, algorithms);
criterion_main!(benches);
