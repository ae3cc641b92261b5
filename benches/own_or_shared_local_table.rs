//! Quotas that are counted under a lock: a limiter with a table of its own beside the same limit in a store. One hot key
//! by some threads, as ratios of rounds that take turns, and the memory of a key: `cargo bench --bench own_or_shared_local_table`.
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use allocation_counter::measure;
use tower_ratelimit::{Key, LocalLimiter, LocalStore, Quota};

const ROUNDS: usize = 41;

/// Decisions of all threads in a round.
const DECISIONS: u32 = 400_000;

/// Keys that a table is filled with, for the memory of one.
const KEYS: usize = 1 << 18;

/// Nearly 18 years. Windows of this length have their next edge in 2041.
const AGES: Duration = Duration::from_micros(1 << 49);

const LASTING: Quota = Quota::per(1 << 49, AGES);

const SPENT: Quota = Quota::per(1, AGES);

/// The time until the last of the threads has made its decisions.
fn time_of(limiter: &LocalLimiter, threads: u32) -> Duration {
    let key = Key::from("tenant");
    let start = Barrier::new(threads as usize);
    let work = || {
        start.wait();
        let began = Instant::now();
        for _ in 0..DECISIONS / threads {
            black_box(limiter.acquire(&key, 1).is_allowed());
        }
        began.elapsed()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let times = running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        times.max().unwrap_or_default()
    })
}

/// Both kinds of table in one order and then in the other; the middle of the ratios, and of each kind's times.
fn compare(name: &str, quotas: &[Quota], threads: u32) {
    let [own, stored] = tables(quotas, KEYS);
    let mut ratios = Vec::new();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let [first, second] = if round % 2 == 0 {
            [&own, &stored]
        } else {
            [&stored, &own]
        };
        let mut pair = [time_of(first, threads), time_of(second, threads)];
        if round % 2 == 1 {
            pair.reverse();
        }
        if round > 0 {
            ratios.push(pair[1].as_secs_f64() / pair[0].as_secs_f64());
            times[0].push(pair[0].as_secs_f64());
            times[1].push(pair[1].as_secs_f64());
        }
    }
    ratios.sort_by(f64::total_cmp);
    let [own, stored] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2] * 1e9 / f64::from(DECISIONS)
    });
    println!(
        "{name}, {threads} threads: {:.2} in a store over its own table, the middle half {:.2} to {:.2} \
         ({stored:.0} over {own:.0} ns)",
        ratios[ROUNDS / 2],
        ratios[ROUNDS / 4],
        ratios[ROUNDS * 3 / 4],
    );
}

fn tables(quotas: &[Quota], keys: usize) -> [LocalLimiter; 2] {
    let builder = || LocalLimiter::builder(quotas).max_keys(keys);
    // A store counts states, a table of its own keys.
    let store = LocalStore::builder().max_keys(keys * quotas.len());
    let store = store.build().expect("a good size");
    let stored = LocalLimiter::builder(quotas).build_in(&store);
    [
        builder().build().expect("good quotas"),
        stored.expect("good quotas"),
    ]
}

/// Bytes of a table that is full of keys, for each key.
fn memory(name: &str, quotas: &[Quota]) {
    let [own, stored] = tables(quotas, KEYS).map(|limiter| {
        let filled = measure(|| {
            for key in 0..KEYS as u64 {
                black_box(limiter.acquire(&key.into(), 1));
            }
        });
        filled.bytes_current as f64 / KEYS as f64
    });
    println!("{name}: {own:.1} bytes a key in a table of its own, {stored:.1} in a store");
}

fn main() {
    let window = [LASTING.fixed_window().named("window")];
    let denied = [SPENT.fixed_window().named("window")];
    let two = [LASTING.named("one"), LASTING.fixed_window().named("other")];
    for threads in [1, 2, 4, 8] {
        compare("a fixed window", &window, threads);
        compare("a fixed window that denies", &denied, threads);
        compare("two quotas", &two, threads);
    }
    memory("a fixed window", &window);
    memory("two quotas", &two);
}
