//! Suggested limits.

use serde_json::Value;

use super::support::{MIDNIGHT, directory, file, json, line, run};

fn with_user(user: &str, second: u64) -> String {
    line(MIDNIGHT + second, "203.0.113.7", "GET /a", 200).replacen("- -", &format!("- {user}"), 1)
}

/// Nine of ten have no user, and share a key that is no client's.
#[test]
fn requests_without_a_key_are_no_client() {
    let directory = directory();
    let mut log = String::new();
    for number in 0..2_000 {
        let user = match number % 10 {
            0 => format!("user{}", number / 10),
            _ => "-".to_owned(),
        };
        log += &with_user(&user, number / 40);
    }
    let log = file(&directory, "access.log", log);
    let reported = json(&[&log, "--key", "user", "--suggest"]);
    assert_eq!(
        (&reported["without_key"], &reported["keys"]),
        (&1_800.into(), &201.into())
    );
    assert_eq!(
        reported["suggestion"]["windows"][2]["peaks"]["max"], 1,
        "{reported}"
    );
    assert_eq!(reported["suggestion"]["quota"], "2/60s burst 2");
    // No request has a key: there is no suggestion, and the page has no chart for it.
    let nobody = file(&directory, "nobody.log", with_user("-", 0).repeat(9));
    let page = directory.path().join("report.html").display().to_string();
    let arguments = [&nobody, "--key", "user", "--suggest", "--report", &page];
    assert!(json(&arguments)["suggestion"].is_null());
}

/// The requests that the suggested quota limits in a replay of the log.
fn limited_by_suggestion(log: &str, more: &[&str]) -> (Value, Value) {
    let reported = json(&[&[log, "--suggest"], more].concat());
    let quota = reported["suggestion"]["quota"].as_str().expect("a quota");
    let replayed = json(&[&[log, "--quota", quota], more].concat());
    let limited = replayed["quotas"][0].clone();
    (reported["suggestion"].clone(), limited)
}

/// Fifty at the end of a minute and fifty at the start of the next one are a hundred within it.
#[test]
fn the_edge_of_a_window_hides_nothing() {
    let directory = directory();
    let clients = (0..40).flat_map(|client| {
        let client = format!("10.0.0.{client}");
        [58, 62, 178, 182].map(|second| line(MIDNIGHT + second, &client, "GET /a", 200).repeat(50))
    });
    let mut lines: Vec<String> = clients.collect();
    lines.sort_by_key(|lines| {
        lines
            .split_once(':')
            .map(|(_, clock)| clock[..8].to_owned())
    });
    let log = file(&directory, "access.log", lines.concat());
    for spread in ["even", "none"] {
        let (suggestion, limited) = limited_by_suggestion(&log, &["--spread", spread]);
        for window in [1, 2] {
            let peaks = &suggestion["windows"][window]["peaks"];
            assert_eq!(
                (&peaks["p50"], &peaks["max"]),
                (&100.into(), &100.into()),
                "{suggestion}"
            );
        }
        assert_eq!(suggestion["quota"], "120/60s burst 120");
        assert_eq!(limited["limited"]["requests"], 0, "{spread}");
    }
}

/// The placement of requests within their second does not affect the suggestion.
#[test]
fn the_suggestion_is_the_same_for_each_spread() {
    let directory = directory();
    let log: String = (0..3_000_u64)
        .map(|number| {
            let client = format!("10.0.0.{}", number * number % 37);
            line(MIDNIGHT + number / 7, &client, "GET /a", 200)
        })
        .collect();
    let log = file(&directory, "access.log", log);
    let [even, none] = ["even", "none"].map(|spread| {
        let (suggestion, limited) = limited_by_suggestion(&log, &["--spread", spread]);
        assert_eq!(limited["limited"]["requests"], 0, "{spread}");
        (
            suggestion["quota"].clone(),
            suggestion["windows"][1].clone(),
        )
    });
    assert_eq!(even, none);
}

/// Windows start at each half, as the text explains.
#[test]
fn the_text_explains_how_windows_are_counted() {
    let directory = directory();
    let log = file(&directory, "access.log", with_user("a", 0));
    let (_, text, _) = run(&[&log, "--suggest"]);
    assert!(
        text.contains("windows begin at each half of their length"),
        "{text}"
    );
}
