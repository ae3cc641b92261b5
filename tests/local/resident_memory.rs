//! Memory that is resident. Each test runs in a process of its own, since an allocator keeps what other tests freed.

use std::{env, fs, process::Command};

use tower_ratelimit::{Key, LocalLimiter, Quota};

/// Names the test that a process is for.
const MEASURED: &str = "RESIDENT_MEMORY_OF";

/// Runs a test of this module in a process of its own.
fn in_own_process(test: &str, measure: impl FnOnce()) {
    if env::var_os(MEASURED).is_some_and(|measured| measured == test) {
        return measure();
    }
    let output = Command::new(env::current_exe().expect("this test"))
        .args([
            &format!("resident_memory::{test}"),
            "--exact",
            "--nocapture",
        ])
        .env(MEASURED, test)
        .output()
        .expect("a process");
    let [text, errors] = [&output.stdout, &output.stderr].map(|of| String::from_utf8_lossy(of));
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

/// The bytes that this process has written to.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/smaps_rollup").expect("there is one on Linux");
    let line = pages.lines().find(|line| line.starts_with("Anonymous:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    1_024 * kib.expect("a number")
}

fn lone() -> LocalLimiter {
    LocalLimiter::new(Quota::per_second(10))
}

fn several() -> LocalLimiter {
    LocalLimiter::new([Quota::per_second(10), Quota::per_day(1_000).fixed_window()])
}

fn charge(limiter: &LocalLimiter, keys: u64) {
    for key in 0..keys {
        assert!(limiter.acquire(&Key::from(key), 1).is_allowed());
    }
}

/// Limiters that nobody has called yet take next to no memory, whatever they may come to hold. Others that
/// were full were dropped before, so that the allocator has memory that it would have to zero.
#[test]
fn unused_limiters_take_no_memory() {
    in_own_process("unused_limiters_take_no_memory", || {
        charge(&lone(), 262_144);
        charge(&several(), 262_144);
        let before = resident();
        let lone = (0..30).map(|_| lone());
        let limiters: Vec<_> = lone.chain((0..30).map(|_| several())).collect();
        // 262,144 keys each: with one bucket 8 MB (64 KiB at once), with two quotas 30 MB.
        let taken = resident().saturating_sub(before);
        assert!(taken < 4_000_000, "{taken} bytes of 60 limiters");
        limiters.iter().for_each(|limiter| charge(limiter, 1));
        let taken = resident().saturating_sub(before);
        assert!(taken < 15_000_000, "{taken} bytes with one key each");
    });
}

fn few_keys_take_few_pages(keys: u64) {
    let limiter = lone();
    let before = resident();
    charge(&limiter, keys);
    let taken = resident() - before;
    assert!(taken <= 200 << 10, "{taken} bytes of {keys} keys");
}

#[test]
fn thousand_keys_take_few_pages() {
    in_own_process("thousand_keys_take_few_pages", || {
        few_keys_take_few_pages(1_000);
    });
}

#[test]
fn three_thousand_keys_take_few_pages() {
    in_own_process("three_thousand_keys_take_few_pages", || {
        few_keys_take_few_pages(3_000);
    });
}
