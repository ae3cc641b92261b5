//! Invalid lines.

use proptest::prelude::*;
use serde_json::Value;

use super::support::{MIDNIGHT, directory, file, json, line, run, small};

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
    let reported = json(&[&log, "--quota", "4/minute"]);
    assert_eq!(
        (&reported["lines"], &reported["skipped"]),
        (&17.into(), &6.into())
    );
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 6);
    let reasons = reported["skipped_first"].as_array().expect("reasons");
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

/// Line endings make no difference.
#[test]
fn ends_of_lines_make_no_difference() {
    let directory = directory();
    let log = small();
    let crlf = log.replace('\n', "\r\n");
    for (name, text) in [
        ("cut", log.trim_end()),
        ("crlf", &crlf),
        ("both", crlf.trim_end()),
    ] {
        let log = file(&directory, name, text);
        let reported = json(&[&log, "--quota", "4/minute"]);
        assert_eq!(
            (&reported["attempts"], &reported["skipped"]),
            (&11.into(), &0.into()),
            "{name}"
        );
        assert_eq!(reported["quotas"][0]["limited"]["requests"], 6, "{name}");
    }
}

/// The repeated hour of Berlin: the log continues while its clock goes back.
#[test]
fn clocks_may_be_turned_back() {
    let directory = directory();
    let line =
        |time: &str| format!("203.0.113.7 - - [25/Oct/2026:{time}] \"GET / HTTP/1.1\" 200 5\n");
    let times = [
        "02:59:58 +0200",
        "02:59:59 +0200",
        "02:00:00 +0100",
        "02:00:01 +0100",
        "03:00:00 +0100",
    ];
    let log = file(&directory, "access.log", times.map(line).concat());
    let reported = json(&[&log, "--quota", "2/minute fixed_window"]);
    assert_eq!(
        (&reported["late"], &reported["first"], &reported["last"]),
        (
            &0.into(),
            &"2026-10-25T00:59:58Z".into(),
            &"2026-10-25T02:00:00Z".into()
        )
    );
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 0);
}

/// Each line has its own format, unless the arguments set one.
#[test]
fn a_file_of_two_formats_is_read_as_both() {
    let directory = directory();
    let json_line = "  {\"ts\":1795132809,\"ip\":\"203.0.113.7\",\"status\":200}\n";
    let log = file(&directory, "access.log", small() + &json_line.repeat(3));
    for (format, attempts, skipped) in [
        ("auto", 14, 0),
        ("combined", 11, 3),
        ("common", 11, 3),
        ("json", 3, 11),
    ] {
        let reported = json(&[&log, "--suggest", "--format", format]);
        assert_eq!(
            (&reported["attempts"], &reported["skipped"]),
            (&attempts.into(), &skipped.into()),
            "{format}"
        );
    }
}

/// Lines of a log, some with changed bytes, and random bytes; whether it is an unchanged line.
fn lines() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let json = r#"{"ts":1795132801.5,"request":{"remote_ip":"203.0.113.7","uri":"/","method":"GET","headers":{"X":["a"]}},"status":200}"#;
    let good = prop_oneof![
        Just(line(MIDNIGHT, "203.0.113.7", "GET /\\\"", 200)),
        Just(format!("{json}\n"))
    ];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let changed = (good.clone(), changes).prop_map(|(good, changes)| {
        let mut bytes = good.into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes
    });
    let bytes = prop_oneof![4 => changed, 1 => proptest::collection::vec(any::<u8>(), 0..80)];
    prop_oneof![
        good.prop_map(|good| (good.into_bytes(), true)),
        bytes.prop_map(|mut bytes| {
            // The next text is a line of its own.
            bytes.push(b'\n');
            (bytes, false)
        })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// Each line is an attempt or is skipped, and does not affect its neighbours.
    #[test]
    fn no_line_is_lost_or_too_much(lines in proptest::collection::vec(lines(), 1..30)) {
        let directory = directory();
        // The first bytes of a file could look compressed.
        let first = (line(MIDNIGHT, "203.0.113.7", "GET /", 200).into_bytes(), true);
        let lines = [vec![first], lines].concat();
        let bytes: Vec<u8> = lines.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let all = bytes.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
        let good = lines.iter().filter(|(_, is_good)| *is_good).count() as u64;
        // A changed line may still be valid.
        let alone = all.clone().filter(|line| tower_ratelimit_replay::read_line(line).is_ok());
        let (all, alone) = (all.count() as u64, alone.count() as u64);
        let log = file(&directory, "access.log", bytes);
        let (exit, out, errors) = run(&[&log, "--quota", "1/minute", "--suggest", "--json"]);
        prop_assert!(exit < 2, "{}", errors);
        let reported: Value = serde_json::from_str(&out).expect("JSON");
        let count = |name: &str| reported[name].as_u64().expect("a number");
        prop_assert_eq!(count("lines"), all);
        prop_assert_eq!(count("attempts") + count("skipped"), all);
        // A readable line is no attempt only if it is from the future.
        let skipped = count("skipped") - (all - alone);
        prop_assert!(count("attempts") >= good && skipped <= alone - good, "{}", reported);
    }
}
