//! A process that began before its clock was set, as on a machine without one of its own: libfaketime puts the
//! clock of such a process back, and right while it runs.

use std::{
    env, fs,
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use testkit::needs;
use tower_ratelimit::{
    Decision, Headers, Key, LocalLimiter, OnFailure, Quota, RedisLimiter, RedisStore,
    headers::ResetFormat,
};

use crate::servers::{Server, faketime_library};

const DAY: u64 = 86_400;

/// The variables of the process whose clock is faked.
const CLOCK: &str = "FAKETIME_TIMESTAMP_FILE";
const REDIS: &str = "CLOCK_SET_LATER_REDIS";

/// Runs this test once more, in a process whose clock is this much behind at first.
fn run_behind(test: &str, by: &str, redis: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("clock");
    fs::write(&file, format!("-{by}\n")).expect("a file of the clock");
    let test = format!("system_clock_set_after_start::{test}");
    let mut command = Command::new(env::current_exe().expect("this test"));
    command
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", faketime_library().expect("libfaketime"))
        .env(CLOCK, file)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env(REDIS, redis);
    let ended = command.output().expect("a process");
    let printed = [ended.stdout, ended.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    println!("{printed}");
    assert!(ended.status.success() && printed.contains("1 passed"));
}

/// Sets the clock of this process right, and waits until the process has read it.
fn set_clock(file: &str) {
    fs::write(Path::new(file), "+0s\n").expect("a file of the clock");
    sleep(Duration::from_millis(1_100));
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after the epoch").as_secs()
}

fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= 5
}

fn denied(limiter: &LocalLimiter) -> Decision {
    let _ = limiter.acquire_up_to(&Key::from("alice"), 5);
    let denied = limiter.acquire(&Key::from("alice"), 1);
    assert!(denied.is_denied());
    denied
}

#[test]
fn a_day_ends_when_it_does_after_the_clock_was_set() {
    needs!(fake_clock);
    let Ok(file) = env::var(CLOCK) else {
        return run_behind("a_day_ends_when_it_does_after_the_clock_was_set", "20h", "");
    };
    let day = Quota::per_day(5).fixed_window();
    // The time of a lone bucket's decision is that of the clock that does not step.
    let limiters = [day, Quota::per_hour(5)].map(LocalLimiter::new);
    let _ = limiters.each_ref().map(denied);
    let behind = wall();
    set_clock(&file);
    let right = wall();
    assert!(is_near(right - behind, 20 * 3_600), "{behind} and {right}");
    for (limiter, end) in limiters.iter().zip([DAY - right % DAY, 720]) {
        let denied = denied(limiter);
        let wait = denied.retry_after().expect("it fits later").as_secs();
        println!("Retry-After {wait} where the wait ends in {end}");
        assert!(is_near(wait, end), "{wait} instead of {end}");
        assert!(is_near(denied.decided_at().as_micros() / 1_000_000, right));
        let mut fields = HeaderMap::new();
        let headers = Headers::none().x_ratelimit(Some(ResetFormat::EpochSeconds));
        headers.apply(&denied, &mut fields);
        let reset = fields["x-ratelimit-reset"].to_str().expect("digits");
        let reset: u64 = reset.parse().expect("digits");
        assert!(is_near(reset, right + end), "{reset} after {right}");
    }
}

#[tokio::test]
async fn a_calendar_limit_is_redis_s_after_the_clock_was_set() {
    needs!(redis, fake_clock);
    let Ok(file) = env::var(CLOCK) else {
        let server = Server::start().await;
        let url = server.url();
        let run = move || {
            let test = "a_calendar_limit_is_redis_s_after_the_clock_was_set";
            run_behind(test, "72h", &url);
        };
        return tokio::task::spawn_blocking(run).await.expect("a process");
    };
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&env::var(REDIS).expect("a Redis")).unwrap();
    let day = Quota::per_day(100).in_zone("UTC");
    let builder = RedisLimiter::builder(day).on_failure(OnFailure::allow());
    let limiter = builder.build(&store).unwrap();
    let mut without_redis = [0; 2];
    for (round, without) in without_redis.iter_mut().enumerate() {
        if round == 1 {
            set_clock(&file);
        }
        for _ in 0..20 {
            let decision = limiter.acquire(&Key::from("alice"), 1).await.unwrap();
            *without += u32::from(decision.is_degraded());
        }
    }
    println!("without Redis: {without_redis:?} of 20 each");
    assert_eq!(without_redis, [20, 0]);
}
