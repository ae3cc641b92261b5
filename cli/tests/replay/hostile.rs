//! Lines that are none.

use proptest::prelude::*;
use serde_json::Value;

use crate::support::{MIDNIGHT, directory, file, json, line, run, small};

#[test]
fn hostile_lines_are_skipped_and_shown() {
    let directory = directory();
    let mut log = small().into_bytes();
    log.extend(b"\0\0\0\n");
    log.extend(vec![b'x'; 3 << 20]);
    log.extend(b"\n\n\n");
    log.extend(
        line(MIDNIGHT + 9, "203.0.113.7", "GET /a", 200)
            .replace("2026", "2099")
            .bytes(),
    );
    log.extend(b"{\"ts\":1e400}\n[1,2\n\"\xff\xfe\" - - [");
    let log = file(&directory, "access.log", log);
    let told = json(&[&log, "--quota", "4/minute"]);
    assert_eq!((&told["lines"], &told["skipped"]), (&17.into(), &6.into()));
    assert_eq!(told["quotas"][0]["limited"]["requests"], 6);
    let reasons = told["skipped_first"].as_array().expect("reasons");
    let ends = [
        "12: it has no fields",
        "13: it is longer than 1 MiB",
        "16: its time is to come",
    ];
    for (reason, end) in reasons.iter().zip(ends) {
        assert!(
            reason.as_str().is_some_and(|reason| reason.ends_with(end)),
            "{reason} {end}"
        );
    }
}

/// Lines of a log with some of their bytes changed, and bytes of any kind.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let json = r#"{"ts":1795132801.5,"request":{"remote_ip":"203.0.113.7","uri":"/","method":"GET","headers":{"X":["a"]}},"status":200}"#;
    let good = prop_oneof![
        Just(line(MIDNIGHT, "203.0.113.7", "GET /\\\"", 200)),
        Just(format!("{json}\n"))
    ];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let changed = (good, changes).prop_map(|(good, changes)| {
        let mut bytes = good.into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes
    });
    prop_oneof![4 => changed, 1 => proptest::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// Whatever a line is, it is an attempt or is skipped.
    #[test]
    fn no_line_is_lost_or_too_much(lines in proptest::collection::vec(lines(), 1..30)) {
        let directory = directory();
        let log = file(&directory, "access.log", lines.concat());
        let (exit, out, errors) = run(&[&log, "--quota", "1/minute", "--suggest", "--json"]);
        prop_assert!(exit < 2, "{}", errors);
        let told: Value = serde_json::from_str(&out).expect("JSON");
        let count = |name: &str| told[name].as_u64().expect("a number");
        prop_assert_eq!(count("attempts") + count("skipped"), count("lines"));
    }
}
