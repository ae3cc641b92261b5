//! A replay beside the limiter itself.

use std::{fmt::Write as _, fs, path::Path};

use proptest::prelude::*;
use tower_ratelimit::{Key, LocalLimiter, ManualClock, Quota, Timestamp};

use crate::support::{MIDNIGHT, directory, json};

/// Requests, and the same as lines of a log with milliseconds.
fn requests() -> impl Strategy<Value = Vec<(u64, u8)>> {
    proptest::collection::vec((0..900_u64, 0..6_u8), 1..3_000)
}

fn write_log(path: &Path, requests: &[(u64, u8)]) {
    let mut log = String::new();
    let mut at = MIDNIGHT * 1_000;
    for (gap, client) in requests {
        at += gap;
        let _ = writeln!(
            log,
            "{{\"ts\":{at},\"ip\":\"10.0.0.{client}\",\"status\":200}}"
        );
    }
    fs::write(path, log).expect("a file");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// A replay is nothing but the limiter, asked at the times of the lines.
    #[test]
    fn a_replay_is_the_limiter_in_a_loop(requests in requests()) {
        let directory = directory();
        let path = directory.path().join("access.json");
        write_log(&path, &requests);
        let texts = ["20/10s burst 5", "20/10s fixed_window", "20/10s sliding_window", "20/10s sliding_log"];
        let mut arguments = vec![path.to_str().expect("a path")];
        arguments.extend(texts.iter().flat_map(|text| ["--quota", text]));
        let told = json(&arguments);
        for (place, text) in texts.iter().enumerate() {
            let quota: Quota = text.parse().expect("a quota");
            let clock = ManualClock::new();
            let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build().expect("a limiter");
            let mut at = MIDNIGHT * 1_000;
            let mut limited = 0;
            for (gap, client) in &requests {
                at += gap;
                clock.set(Timestamp::from_micros(at * 1_000));
                let client = std::net::IpAddr::from([10, 0, 0, *client]);
                limited += u64::from(limiter.acquire(&Key::from(client), 1).is_denied());
            }
            prop_assert_eq!(&told["quotas"][place]["limited"]["requests"], limited, "{}", text);
        }
    }
}
