//! A leased decision on a hot key beside one of the local limiter, in one run:
//! `cargo bench --features redis --bench leased`.
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use tower_ratelimit::{
    Decision, Key, LocalLimiter, Quota,
    limiter::Pending,
    shared::{MemoryStore, Mode, SharedLimiter},
};

const DECISIONS: u32 = 2_000_000;

/// A unit a microsecond, of which nearly 18 years are there at first.
const LASTING: Quota = Quota::per(1 << 49, Duration::from_micros(1 << 49));

/// The time of one decision, of as many on each of some threads.
fn time_of(threads: u32, decide: impl Fn() + Sync) -> Duration {
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..DECISIONS).for_each(|_| decide()));
        }
    });
    began.elapsed() / DECISIONS
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let key = Key::from("tenant");
    let local = LocalLimiter::new(LASTING);
    let builder = SharedLimiter::builder(LASTING).mode(Mode::leased());
    let leased = builder.build_on(MemoryStore::new()).expect("a good quota");
    let ask_local = || {
        black_box(local.acquire(&key, 1));
    };
    let ask_leased = || {
        let _runtime = runtime.enter();
        match black_box(leased.acquire(&key, 1)) {
            Pending::Ready(answer) => assert!(answer.as_ref().is_ok_and(Decision::is_allowed)),
            Pending::Later(answer) => drop(runtime.block_on(answer)),
        }
    };
    // The demand has to be known first.
    time_of(1, ask_leased);
    for threads in [1, 2] {
        let before = leased.mode_stats();
        let (local, leased_time) = (time_of(threads, ask_local), time_of(threads, ask_leased));
        let stats = leased.mode_stats();
        let asked = stats.asked - before.asked;
        println!(
            "{threads} threads: local {local:?}, leased {leased_time:?} ({:.2} times), of a million \
             decisions the store was asked for {:.1}",
            leased_time.as_secs_f64() / local.as_secs_f64(),
            asked as f64 * 1e6 / f64::from(threads * DECISIONS),
        );
    }
}
