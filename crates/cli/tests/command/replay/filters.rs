//! Filters by time, client and key.

use serde_json::json as value;

use super::support::{MIDNIGHT, directory, file, json, line, run, small};

/// Forty clients of three requests each, a second apart, and one that sends a hundred at once.
fn attacked() -> String {
    let mut log: String = (0..40)
        .flat_map(|client| (0..3).map(move |second| (client, second)))
        .map(|(client, second)| {
            line(
                MIDNIGHT + 3 * client + second,
                &format!("10.0.0.{client}"),
                "GET /a",
                200,
            )
        })
        .collect();
    log += &line(MIDNIGHT + 130, "203.0.113.66", "GET /a", 200).repeat(100);
    log
}

/// The start counts and the end does not, in each format.
#[test]
fn times_before_and_after_are_left_out() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    for (from, until, attempts) in [
        ("2026-11-20T00:00:03Z", "2026-11-20T00:00:09Z", 6),
        ("2026-11-20T01:00:03+01:00", "2026-11-20 00:00:09.000Z", 6),
        ("20/Nov/2026:00:00:03 +0000", "2026-11-21", 8),
        ("2026-11-20", "2026-11-20T00:00:01.5Z", 2),
        ("2026-11-21", "2026-11-22", 0),
    ] {
        let arguments = [&log, "--quota", "1/day", "--from", from, "--until", until];
        let reported = json(&arguments);
        assert_eq!(reported["attempts"], attempts, "{reported}");
        let left_out = reported["left_out"].as_array().expect("a list");
        let lines = left_out.iter().filter_map(|one| one["lines"].as_u64());
        assert_eq!(lines.sum::<u64>(), 11 - attempts, "{reported}");
    }
    let (_, text, _) = run(&[&log, "--suggest", "--from", "2026-11-20T00:00:03Z"]);
    assert!(
        text.contains("\nleft out by --from 2026-11-20T00:00:03Z: 3 lines\n"),
        "{text}"
    );
}

/// The requests of an attacker do not measure the needs of others.
#[test]
fn an_attack_does_not_shape_the_suggestion() {
    let directory = directory();
    let log = file(&directory, "access.log", attacked());
    let suggested = |more: &[&str]| {
        let reported = json(&[&[log.as_str(), "--suggest"], more].concat());
        reported["suggestion"]["quota"].clone()
    };
    assert_eq!(suggested(&[]), "120/60s burst 120");
    for more in [
        ["--exclude", "203.0.113.66"],
        ["--exclude", "198.51.100.0/24,203.0.113.0/24"],
        ["--exclude", "::ffff:203.0.113.66"],
        ["--exclude-key", "203.0.113.66"],
        ["--until", "2026-11-20T00:02:10Z"],
    ] {
        assert_eq!(suggested(&more), "4/60s burst 4", "{more:?}");
    }
}

/// A filtered client is not limited either, by quotas and by rules. The report has the number of
/// lines for each option: an option without any is probably mistyped.
#[test]
fn clients_that_are_left_out_have_sent_nothing() {
    let directory = directory();
    let log = file(&directory, "access.log", attacked());
    let rules = file(
        &directory,
        "rules.yaml",
        "rules: [{name: a, quota: 10/minute}]",
    );
    let rest = ["--rules", &rules, "--exclude", "203.0.113.66,192.0.2.1"];
    let reported = json(&[&[log.as_str(), "--quota", "10/minute"], &rest[..]].concat());
    assert_eq!(reported["attempts"], 120);
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 0);
    assert_eq!(reported["rules"]["limited"]["requests"], 0);
    assert_eq!(
        reported["left_out"],
        value!([
            {"by": "--exclude 203.0.113.66", "lines": 100},
            {"by": "--exclude 192.0.2.1", "lines": 0},
        ])
    );
}

/// The filter applies to the client behind a proxy.
#[test]
fn clients_behind_proxies_are_left_out_by_their_own_address() {
    let directory = directory();
    let of = |client: &str| {
        format!(
            "{{\"ts\":{MIDNIGHT},\"ip\":\"10.0.0.1\",\"http_x_forwarded_for\":\"{client}\",\"status\":200}}\n"
        )
    };
    let log = of("198.51.100.7") + &of("198.51.100.8");
    let log = file(&directory, "access.log", log);
    let arguments = [&log, "--suggest", "--trust-proxies", "10.0.0.0/8"];
    for (network, attempts) in [("198.51.100.7", 1), ("10.0.0.0/8", 2)] {
        let reported = json(&[&arguments[..], &["--exclude", network]].concat());
        assert_eq!(reported["attempts"], attempts, "{network}");
    }
}

/// A key is written as in the report; a shell may remove its quotes.
#[test]
fn keys_are_left_out_as_they_are_shown() {
    let directory = directory();
    let user = |user: &str| {
        line(MIDNIGHT, "203.0.113.7", "GET /a", 200).replacen("- -", &format!("- {user}"), 1)
    };
    let log = user("alice").repeat(5) + &user("bob") + &user("-");
    let log = file(&directory, "access.log", log);
    for (key, shown, attempts) in [
        ("user", "alice", 2),
        ("user", "\"alice\"", 2),
        ("user", "anonymous", 6),
        ("user", "203.0.113.7", 7),
        ("ip+user", "(203.0.113.7, \"bob\")", 6),
    ] {
        let arguments = [&log, "--suggest", "--key", key, "--exclude-key", shown];
        let reported = json(&arguments);
        assert_eq!(reported["attempts"], attempts, "{shown}: {reported}");
    }
}
