//! A replay compared with the limiter itself.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    fs::{self, File},
    io::{BufWriter, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use proptest::prelude::*;
use tower_ratelimit::{
    Key, LocalLimiter, Quota,
    clock::{ManualClock, Timestamp},
};

use super::support::{MIDNIGHT, directory, json};

/// Requests, and the lines of a log for them, with milliseconds.
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

/// Lines of the combined format: whole seconds, with a place for each request in its second.
fn combined(lines: u64, write: &mut dyn FnMut(String)) -> Vec<(u64, Key)> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut requests: Vec<(u64, Key)> = Vec::new();
    let mut second = MIDNIGHT;
    for _ in 0..lines {
        // xorshift64 of Marsaglia.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        second += u64::from(random.is_multiple_of(11));
        let client = random >> 32 & 63;
        let ip: IpAddr = match client % 3 {
            0 => Ipv6Addr::new(0x2001, 0xdb8, 0, client as u16, 0, 0, 0, random as u16).into(),
            _ => Ipv4Addr::new(10, 0, 0, client as u8).into(),
        };
        let day = (second - MIDNIGHT) / 86_400;
        let clock = (second - MIDNIGHT) % 86_400;
        write(format!(
            "{ip} - - [{:02}/Nov/2026:{:02}:{:02}:{:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n",
            day + 20,
            clock / 3_600,
            clock / 60 % 60,
            clock % 60
        ));
        requests.push((second * 1_000_000, Key::from(ip)));
    }
    for of_second in requests.chunk_by_mut(|one, other| one.0 == other.0) {
        let all = of_second.len() as u64;
        for (place, request) in (0..).zip(of_second) {
            request.0 += place * 1_000_000 / all;
        }
    }
    requests
}

/// `REPLAY_LINES=1000000` for a million.
#[test]
fn many_lines_are_the_limiter_in_a_loop() {
    let lines = std::env::var("REPLAY_LINES")
        .ok()
        .and_then(|lines| lines.parse().ok());
    let directory = directory();
    let path = directory.path().join("access.log");
    let mut log = BufWriter::new(File::create(&path).expect("a file"));
    let requests = combined(lines.unwrap_or(20_000), &mut |line| {
        log.write_all(line.as_bytes()).expect("bytes");
    });
    drop(log);
    let texts = ["30/minute burst 7", "2/s sliding_log"];
    let path = path.to_str().expect("a path");
    let reported = json(&[path, "--quota", texts[0], "--quota", texts[1]]);
    assert_eq!(reported["attempts"], requests.len());
    for (place, text) in texts.iter().enumerate() {
        let clock = ManualClock::new();
        let quota: Quota = text.parse().expect("a quota");
        let limiter = LocalLimiter::builder(quota).clock(clock.clone());
        let limiter = limiter.build().expect("a limiter");
        let denied = |(at, key): &&(u64, Key)| {
            clock.set(Timestamp::from_micros(*at));
            limiter.acquire(key, 1).is_denied()
        };
        let denied: Vec<_> = requests.iter().filter(denied).collect();
        let expected = &reported["quotas"][place];
        assert_eq!(expected["limited"]["requests"], denied.len(), "{text}");
        let keys: HashSet<_> = denied.iter().map(|(_, key)| key).collect();
        assert_eq!(expected["keys_limited"], keys.len(), "{text}");
        let mut minutes: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, _) in denied {
            *minutes.entry(at / 60_000_000).or_default() += 1;
        }
        let worst = minutes.values().max().copied().unwrap_or(0);
        assert_eq!(
            expected["limited"]["worst_minute_requests"], worst,
            "{text}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// A replay has the results of the limiter at the times of the lines.
    #[test]
    fn a_replay_is_the_limiter_in_a_loop(requests in requests()) {
        let directory = directory();
        let path = directory.path().join("access.json");
        write_log(&path, &requests);
        let texts = ["20/10s burst 5", "20/10s fixed_window", "20/10s sliding_window", "20/10s sliding_log"];
        let mut arguments = vec![path.to_str().expect("a path")];
        arguments.extend(texts.iter().flat_map(|text| ["--quota", text]));
        let reported = json(&arguments);
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
            prop_assert_eq!(&reported["quotas"][place]["limited"]["requests"], limited, "{}", text);
        }
    }
}
