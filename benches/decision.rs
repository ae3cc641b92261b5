//! Decisions of the local limiter, by algorithm, by how requests spread over keys, and by threads:
//! `cargo bench --bench decision`.
#![allow(missing_docs, reason = "criterion's macros")]

#[allow(unreachable_pub, reason = "another package uses it, too")]
use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
    measurement::WallTime,
};
use testkit::random_keys::Spread;
use tower_ratelimit::{
    Decision, Key, LocalLimiter, LocalStore, Quota,
    decision::Outcome,
    quota::{IntoQuotas, OwnedQuota},
};

const MILLION: u32 = 1_000_000;

/// The most keys of a limiter without a setting.
const USUAL: usize = 1 << 18;

/// Nearly 18 years, which is about the longest period there can be. Windows of this length have
/// their next edge in 2041.
const AGES: Duration = Duration::from_micros(1 << 49);

/// A unit a microsecond, the most that is accepted. Half of it lasts a month of a hundred million
/// decisions a second, even where nothing comes back.
const LASTING: Quota = Quota::per(1 << 49, AGES);

/// One request uses it up for longer than any bench runs.
const SPENT: Quota = Quota::per(1, AGES);

/// The outcome of every decision of a row.
#[derive(Debug, Clone, Copy)]
enum Row {
    Allowed,
    Delayed,
    Denied,
}

impl Row {
    fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Delayed => "delayed",
            Self::Denied => "denied",
        }
    }

    fn is_of(self, decision: &Decision) -> bool {
        match decision.outcome() {
            Outcome::Allowed => matches!(self, Self::Allowed),
            Outcome::Delayed(_) => matches!(self, Self::Delayed),
            Outcome::Denied => matches!(self, Self::Denied),
            _ => false,
        }
    }

    /// Units that a key takes before the first measured decision: all there is, or half of it,
    /// so that there is always something to remember of the key, however slow the machine is.
    fn taken(self, quotas: &[OwnedQuota]) -> u64 {
        let capacities = quotas.iter().map(|quota| quota.quota().capacity());
        let capacity = capacities.min().unwrap_or(0);
        match self {
            Self::Allowed | Self::Delayed => capacity / 2,
            Self::Denied => capacity,
        }
    }

    /// Sees to it that the row is what it is called. Of as many keys as a table is made for it
    /// loses fewer than 1 in 10,000, which start anew.
    fn check(self, limiter: &LocalLimiter, keys: u32) {
        let decisions = (0..keys).map(|number| limiter.peek(&key(number), 1));
        let others = decisions.filter(|decision| !self.is_of(decision)).count();
        assert!(
            others <= keys as usize / 10_000,
            "{others} of {keys} keys are not {}",
            self.name()
        );
    }
}

fn key(number: u32) -> Key {
    Key::from(u64::from(number))
}

fn spreads() -> [(&'static str, u32, Spread); 4] {
    [
        ("one key", 1, Spread::OneKey),
        ("1 k keys", 1_000, Spread::Uniform(1_000)),
        ("1 M keys", MILLION, Spread::Uniform(MILLION)),
        ("1 M keys by Zipf", MILLION, Spread::zipf(MILLION)),
    ]
}

/// A limiter that is ready for a row about so many keys.
fn limiter(row: Row, quotas: impl IntoQuotas, max_keys: usize, keys: u32) -> LocalLimiter {
    let quotas = quotas.into_quotas();
    let taken = row.taken(&quotas);
    let builder = LocalLimiter::builder(quotas).max_keys(max_keys);
    let limiter = builder.build().expect("good quotas and a good size");
    for number in 0..keys {
        let decision = limiter.acquire(&key(number), taken);
        assert!(decision.is_allowed(), "there is less than {taken}");
    }
    limiter
}

fn request(limiter: &LocalLimiter, spread: &Spread, seed: u64, count: u64) {
    for number in spread.numbers(seed).take(count as usize) {
        black_box(limiter.acquire(&key(number), 1).is_allowed());
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
                request(limiter, spread, thread, count / threads + 1);
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

/// The rows of 1, 2 and 8 threads.
fn by_threads(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    limiter: &LocalLimiter,
    spread: &Spread,
) {
    for threads in [1, 2, 8] {
        let id = BenchmarkId::new(name, format!("{threads} threads"));
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|count| in_threads(limiter, spread, threads, count));
        });
    }
}

/// All have the room for a million keys, so that rows differ only by the keys of their
/// requests.
fn keys_and_threads(c: &mut Criterion) {
    for (row, quota) in [(Row::Allowed, LASTING), (Row::Denied, SPENT)] {
        let mut group = c.benchmark_group(row.name());
        group.throughput(Throughput::Elements(1));
        for (name, keys, spread) in spreads() {
            let limiter = limiter(row, quota, MILLION as usize, keys);
            row.check(&limiter, keys);
            by_threads(&mut group, name, &limiter, &spread);
            row.check(&limiter, keys);
        }
        group.finish();
    }
}

/// One hot key where a decision is made under a lock, which is the way of all that is not one
/// bucket.
fn contention(c: &mut Criterion) {
    let mut group = c.benchmark_group("two quotas, one key");
    group.throughput(Throughput::Elements(1));
    for (row, quotas) in [
        (Row::Allowed, two(LASTING, LASTING)),
        (Row::Denied, two(SPENT, LASTING)),
    ] {
        let limiter = limiter(row, quotas, USUAL, 1);
        row.check(&limiter, 1);
        by_threads(&mut group, row.name(), &limiter, &Spread::OneKey);
        row.check(&limiter, 1);
    }
    group.finish();
}

/// A limit with a table of its own beside one in a store.
fn stores(c: &mut Criterion) {
    let mut group = c.benchmark_group("one token bucket");
    group.throughput(Throughput::Elements(1));
    for (name, keys, spread) in [
        ("one key", 1, Spread::OneKey),
        ("100 k keys", 100_000, Spread::Uniform(100_000)),
    ] {
        let store = LocalStore::new();
        let stored = LocalLimiter::builder(LASTING).build_in(&store);
        let stored = stored.expect("a good quota");
        for (table, limiter) in [("own table", LocalLimiter::new(LASTING)), ("store", stored)] {
            request(&limiter, &spread, 0, 4 * keys);
            by_threads(&mut group, &format!("{table}, {name}"), &limiter, &spread);
        }
    }
    group.finish();
}

fn two(one: Quota, other: Quota) -> Vec<Quota> {
    vec![one.named("one"), other.named("other")]
}

/// Every algorithm twice: where there is always enough, and where all is used up.
fn algorithms(c: &mut Criterion) {
    let mut group = c.benchmark_group("algorithm, 1 k keys");
    group.throughput(Throughput::Elements(1));
    for (name, row, quotas) in by_algorithm() {
        const KEYS: u32 = 1_000;
        let limiter = limiter(row, quotas, USUAL, KEYS);
        row.check(&limiter, KEYS);
        group.bench_function(BenchmarkId::new(name, row.name()), |bencher| {
            let spread = Spread::Uniform(KEYS);
            bencher.iter_custom(|count| in_threads(&limiter, &spread, 1, count));
        });
        row.check(&limiter, KEYS);
    }
    group.finish();
}

fn by_algorithm() -> [(&'static str, Row, Vec<Quota>); 12] {
    use Row::{Allowed, Delayed, Denied};
    // Half of the queue stands before every request, so that all of them have to wait.
    let queue = LASTING.leaky_bucket(LASTING.limit() - 1);
    // A log keeps at most 65,536 times, so one that lasts has to forget: this one runs out only if
    // half a billion decisions are made in a second. Each notes a time and, on average, drops one;
    // how many lie between depends on the machine, but no decision walks over them.
    let log = Quota::per(1_000, Duration::from_millis(1)).sliding_log();
    [
        ("token bucket", Allowed, vec![LASTING]),
        ("token bucket", Denied, vec![SPENT]),
        ("leaky bucket", Delayed, vec![queue]),
        ("leaky bucket", Denied, vec![SPENT.leaky_bucket(0)]),
        ("fixed window", Allowed, vec![LASTING.fixed_window()]),
        ("fixed window", Denied, vec![SPENT.fixed_window()]),
        ("sliding window", Allowed, vec![LASTING.sliding_window()]),
        ("sliding window", Denied, vec![SPENT.sliding_window()]),
        ("sliding log", Allowed, vec![log]),
        ("sliding log", Denied, vec![SPENT.sliding_log()]),
        ("two token buckets", Allowed, two(LASTING, LASTING)),
        ("two token buckets", Denied, two(SPENT, LASTING)),
    ]
}

/// A million keys to a file in memory, and back.
fn state_files(c: &mut Criterion) {
    let mut group = c.benchmark_group("state file, 1 M keys");
    group.sample_size(10);
    let keys = MILLION as usize;
    for (name, quota) in [
        ("token bucket", LASTING),
        ("fixed window", LASTING.fixed_window()),
    ] {
        let builder = || LocalLimiter::builder(quota).max_keys(keys);
        let limiter = builder().build().expect("a good quota");
        request(
            &limiter,
            &Spread::Uniform(MILLION),
            0,
            4 * u64::from(MILLION),
        );
        let mut state = Vec::new();
        limiter.save(&mut state).expect("a save to memory");
        group.bench_function(BenchmarkId::new("save", name), |bencher| {
            bencher.iter(|| {
                state.clear();
                limiter.save(&mut state).expect("a save to memory")
            });
        });
        group.bench_function(BenchmarkId::new("restore", name), |bencher| {
            bencher.iter(|| builder().restore(state.as_slice()).expect("its state"));
        });
    }
    let store = || LocalStore::builder().max_keys(keys);
    let saved = store().build().expect("a good size");
    let limiter = LocalLimiter::builder(LASTING).name("bench");
    let limiter = limiter.build_in(&saved).expect("a good quota");
    request(
        &limiter,
        &Spread::Uniform(MILLION),
        0,
        4 * u64::from(MILLION),
    );
    let mut state = Vec::new();
    group.bench_function(BenchmarkId::new("save", "store"), |bencher| {
        bencher.iter(|| {
            state.clear();
            saved.save(&mut state).expect("a save to memory")
        });
    });
    group.bench_function(BenchmarkId::new("restore", "store"), |bencher| {
        bencher.iter(|| store().restore(state.as_slice()).expect("its state"));
    });
    group.finish();
}

criterion_group!(
    benches,
    keys_and_threads,
    contention,
    stores,
    algorithms,
    state_files
);
criterion_main!(benches);
