//! Clocks of servers that jump.

use super::support::{MIDNIGHT, directory, file, json, line};

/// Ten requests a second of one client.
fn requests(seconds: std::ops::Range<u64>) -> Vec<String> {
    let requests = seconds.flat_map(|second| {
        (0..10).map(move |_| line(MIDNIGHT + second, "203.0.113.7", "GET /a", 200))
    });
    requests.collect()
}

const QUOTAS: [&str; 4] = ["--quota", "1/s", "--quota", "20/s burst 2"];

/// A line whose time is an hour ahead, but in the past, is decided at its place; the others are
/// decided as if it was missing.
#[test]
fn a_few_lines_ahead_of_the_log_do_not_hurry_it() {
    let directory = directory();
    let whole = requests(0..60);
    let stray = line(MIDNIGHT + 3_600, "203.0.113.9", "GET /a", 200);
    let expected = json(
        &[
            &[file(&directory, "whole.log", whole.concat()).as_str()][..],
            &QUOTAS,
        ]
        .concat(),
    );
    for (places, many) in [
        (vec![0], 1),
        (vec![300], 1),
        (vec![300], 10),
        (vec![100, 101, 400], 1),
    ] {
        let mut lines = whole.clone();
        for place in places.iter().rev() {
            lines.insert(*place, stray.repeat(many));
        }
        let log = file(&directory, "access.log", lines.concat());
        let reported = json(&[&[log.as_str()][..], &QUOTAS].concat());
        assert_eq!(
            (&reported["late"], &reported["skipped"]),
            (&0.into(), &0.into()),
            "{places:?}"
        );
        assert_eq!(reported["attempts"], 600 + places.len() * many);
        let last = reported["last"].as_str().expect("a time");
        assert!(last.starts_with("2026-11-20T01:00:00"), "{last}");
        let of_one = |reported: &serde_json::Value, quota: usize| {
            let top = reported["top"].as_array().expect("a list").iter();
            let of_one = top.filter(|one| one["key"] == "203.0.113.7");
            let of_one = of_one.map(|one| one["limited"].as_u64()).next();
            let worst = reported["quotas"][quota]["limited"]["worst_minute_requests"].clone();
            (of_one, worst)
        };
        for quota in [0, 1] {
            assert_eq!(
                of_one(&reported, quota),
                of_one(&expected, quota),
                "{places:?}"
            );
        }
    }
}

/// The others do not wait for the time of the line ahead.
#[test]
fn a_file_with_a_line_ahead_is_read_with_the_others() {
    let directory = directory();
    let stray = line(MIDNIGHT + 3_600, "203.0.113.9", "GET /a", 200);
    let mut lines = requests(0..60);
    lines.insert(0, stray.clone());
    lines.insert(300, stray);
    let one = file(&directory, "one.log", lines.concat());
    let other = file(&directory, "other.log", requests(0..60).concat());
    let reported = json(&[&[one.as_str(), &other][..], &QUOTAS].concat());
    assert_eq!(
        (&reported["late"], &reported["attempts"]),
        (&0.into(), &1_202.into())
    );
    let whole = requests(0..60)
        .iter()
        .map(|line| line.repeat(2))
        .collect::<String>();
    let whole = file(&directory, "whole.log", whole);
    let expected = json(&[&[whole.as_str()][..], &QUOTAS].concat());
    assert_eq!(
        reported["quotas"][1]["limited"]["worst_minute_requests"],
        expected["quotas"][1]["limited"]["worst_minute_requests"]
    );
}

/// A log with a gap continues after it.
#[test]
fn a_log_with_gaps_is_put_in_order_behind_them() {
    let directory = directory();
    let lines: String = (0..500)
        .map(|number| {
            // Every second line is written before one that is three seconds earlier.
            let second = number * 60 + if number % 2 == 0 { 63 } else { 0 };
            line(MIDNIGHT + second, "203.0.113.7", "GET /a", 200)
        })
        .collect();
    let log = file(&directory, "access.log", lines);
    let reported = json(&[&log, "--quota", "1/s"]);
    assert_eq!(
        (&reported["late"], &reported["attempts"]),
        (&0.into(), &500.into())
    );
}

/// A limit counts in logs of any year.
#[test]
fn a_log_of_any_year_is_limited() {
    let directory = directory();
    for year in [1971, 2001, 2007, 2019] {
        let lines = (0..8).map(|second| {
            let now = format!("{year}-09-25T00:00:0{second}Z");
            format!("{{\"time\":\"{now}\",\"remote_addr\":\"203.0.113.7\",\"status\":200}}\n")
        });
        let log = file(&directory, "old.jsonl", lines.collect::<String>());
        let reported = json(&[&log, "--quota", "4/h"]);
        let limited = &reported["quotas"][0]["limited"]["requests"];
        assert_eq!((limited, year), (&4.into(), year), "{reported}");
    }
}
