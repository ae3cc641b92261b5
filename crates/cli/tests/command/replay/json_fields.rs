//! Values of JSON lines, also as servers alter them.

use serde_json::{Value, json as value};

use super::support::{MIDNIGHT, directory, file, json, run};

/// A line of a request half a second after midnight, with these fields.
fn with(fields: &str) -> String {
    format!("{{\"ts\":{MIDNIGHT}.5,\"status\":200,{fields}}}\n")
}

fn names(reported: &Value) -> Vec<&str> {
    let top = reported["top"].as_array().expect("a list").iter();
    top.map(|one| one["key"].as_str().expect("a name"))
        .collect()
}

/// Beyond 2^53 several integers are one floating-point number.
#[test]
fn long_numbers_are_clients_of_their_own() {
    let directory = directory();
    let ids = ["1234567890123456789", "1234567890123456790"];
    let log = |field: &str| {
        let lines = ids.map(|id| with(&format!("\"{field}\":{id}")).repeat(2));
        file(&directory, field, lines.concat())
    };
    for (field, key) in [
        ("user_id", "user"),
        ("tenant", "field:tenant"),
        ("ip", "ip"),
    ] {
        let reported = json(&[&log(field), "--key", key, "--quota", "1/day"]);
        assert_eq!(reported["keys"], 2, "{field}");
        let expected = ids.map(|id| format!("\"{id}\""));
        let mut reported = names(&reported);
        reported.sort_unstable();
        assert_eq!(reported, expected, "{field}");
    }
    let own = file(
        &directory,
        "own.json",
        [with("\"user\":-5"), with("\"user\":1.5")].concat(),
    );
    assert_eq!(json(&[&own, "--key", "user", "--suggest"])["keys"], 2);
}

/// Headers that rules read may be numbers, too.
#[test]
fn long_numbers_are_headers_of_their_own() {
    let directory = directory();
    let line = |tenant: &str| {
        with(&format!(
            "\"method\":\"GET\",\"uri\":\"/\",\"http_x_tenant\":{tenant}"
        ))
    };
    let log = [line("1234567890123456789"), line("1234567890123456790")];
    let log = file(&directory, "access.json", log.concat());
    let rules = "rules: [{name: tenants, key: {header: x-tenant}, quota: 1/day}]";
    let rules = file(&directory, "rules.yaml", rules);
    let reported = json(&[&log, "--rules", &rules])["rules"].clone();
    assert_eq!(
        (&reported["limited"]["requests"], &reported["not_in_log"]),
        (&0.into(), &value!([])),
        "{reported}"
    );
}

/// A client can send a line of its own; the proxy appends another one.
#[test]
fn all_lines_of_forwarded_for_are_one_list() {
    let directory = directory();
    let line = |lines: &str| {
        with(&format!(
            "\"request\":{{\"remote_ip\":\"10.0.0.1\",\"method\":\"GET\",\"uri\":\"/\",\"headers\":{{\"X-Forwarded-For\":{lines}}}}}"
        ))
    };
    let log = [
        line("[\"6.6.6.6\",\"203.0.113.7\"]"),
        line("[\"7.7.7.7\",\"203.0.113.7, 10.0.0.9\"]"),
        line("[\"203.0.113.7\"]"),
        line("[\"203.0.113.7\",5,null]"),
        line("[]"),
    ];
    let log = file(&directory, "access.json", log.concat());
    let behind = ["--trust-proxies", "10.0.0.0/8", "--quota", "1/day"];
    let reported = json(&[&[log.as_str()][..], &behind].concat());
    assert_eq!(names(&reported), ["203.0.113.7"], "{reported}");
    assert_eq!(
        (&reported["keys"], &reported["top"][0]["limited"]),
        (&2.into(), &3.into())
    );
    // Rules and keys get the whole list.
    let rules = "rules: [{name: lists, key: {header: x-forwarded-for}, quota: 1/day}]";
    let rules = file(&directory, "rules.yaml", rules);
    let reported = json(&[&log, "--rules", &rules])["rules"].clone();
    assert_eq!(reported["limited"]["requests"], 1, "{reported}");
    let whole = [
        "--key",
        "field:request.headers.X-Forwarded-For",
        "--suggest",
    ];
    let reported = json(&[&[log.as_str()][..], &whole].concat());
    assert_eq!(
        (&reported["keys"], &reported["without_key"]),
        (&4.into(), &1.into())
    );
}

/// nginx writes an empty text or a dash, Caddy hides credentials.
#[test]
fn a_field_without_a_value_is_no_key() {
    let directory = directory();
    let values = ["\"\"", "\"-\"", "null", "[]", "[\"\"]", "[\"REDACTED\"]"];
    let lines = values.map(|value| with(&format!("\"http_x_api_key\":{value}")));
    let log = lines.concat() + &with("\"http_x_api_key\":\"k1\"") + &with("\"a\":0");
    let log = file(&directory, "access.json", log);
    let reported = json(&[&log, "--key", "field:http_x_api_key", "--quota", "1/day"]);
    assert_eq!(
        (&reported["without_key"], &reported["keys"]),
        (&7.into(), &2.into()),
        "{reported}"
    );
    // Nor is it a cookie.
    let line = |value: &str| {
        with(&format!(
            "\"method\":\"GET\",\"uri\":\"/\",\"cookie_session\":\"{value}\""
        ))
    };
    let log = [line("-").repeat(2), line("").repeat(2), line("s").repeat(2)].concat();
    let log = file(&directory, "cookies.json", log);
    let rules =
        "rules: [{name: sessions, key: {cookie: session}, on_missing_key: skip, quota: 1/day}]";
    let rules = file(&directory, "rules.yaml", rules);
    let reported = json(&[&log, "--rules", &rules])["rules"].clone();
    assert_eq!(reported["limited"]["requests"], 1, "{reported}");
}

/// `$msec` has milliseconds, with quotes around it or without.
#[test]
fn a_second_with_a_fraction_of_nothing_is_no_whole_one() {
    let directory = directory();
    for (time, is_whole) in [
        (format!("{MIDNIGHT}"), true),
        (format!("\"{MIDNIGHT}\""), true),
        (format!("{MIDNIGHT}.000"), false),
        (format!("\"{MIDNIGHT}.000\""), false),
        (format!("{MIDNIGHT}.25"), false),
        (format!("{MIDNIGHT}000"), false),
    ] {
        let log = format!("{{\"msec\":{time},\"status\":200,\"ip\":\"203.0.113.7\"}}\n");
        let log = file(&directory, "access.json", log.repeat(2));
        let (exit, text, _) = run(&[&log, "--quota", "2/s burst 1"]);
        assert_eq!(exit, 0);
        assert_eq!(text.contains("whole seconds"), is_whole, "{time}: {text}");
    }
}
