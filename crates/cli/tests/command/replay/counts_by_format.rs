//! Counts of all formats and keys.

use super::support::{MIDNIGHT, clock, directory, file, json, line, run, small};

#[test]
fn a_log_is_reported_as_text() {
    let directory = directory();
    let log = file(&directory, "access.log", small() + "garbage\n");
    let (exit, out, errors) = run(&[&log, "--quota", "4/minute", "--suggest", "--what-if"]);
    assert_eq!((exit, errors.as_str()), (0, ""));
    let expected = format!(
        "12 lines, 11 attempts, 2 keys by ip
from 2026-11-20T00:00:00Z to 2026-11-20T00:00:09Z
1 line skipped, the first of them:
  {log}:12: it has no fields
times are whole seconds: the requests of one are spread evenly over it

4/60s
  limits 6 requests, 54.55 %, of 1 key
  first at 2026-11-20T00:00:04Z; most in the minute from 2026-11-20T00:00:00Z: 6

An upper bound: clients that are refused would have behaved differently.

limited most by 4/60s
            6  203.0.113.7

the most requests of a key in
               p50       p90       p99     p99.9       max
     1 s         1         1         1         1         1
    10 s         1        10        10        10        10
   1 min         1        10        10        10        10
     1 h         1        10        10        10        10

suggested: 12/minute burst 12
  Quota::per_minute(12).burst(12)
  a fifth more than what 999 of 1,000 keys ask for in a minute, and at once in ten seconds;
  windows begin at each half of their length, and as a --quota it tells what it limits
"
    );
    let (reported, what_if) = out.split_once("\nwhat if ").expect("what if");
    assert_eq!(reported, expected);
    let rows: Vec<Vec<&str>> = what_if
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["1/60s", "81.82", "%", "50.00", "%"]);
    assert_eq!(
        rows.last().expect("a row"),
        &["20/60s", "0.00", "%", "0.00", "%"]
    );
}

/// All formats have equal counts for equal requests.
#[test]
fn all_formats_give_the_same_counts() {
    let directory = directory();
    let mut logs = vec![file(&directory, "combined.log", small())];
    let common: String = small().replace(" \"-\" \"curl\"", "");
    logs.push(file(&directory, "common.log", common.replace('\n', "\r\n")));
    let requests = |form: fn(u64, &str, &str, &str, u16) -> String| -> String {
        let many = (0..10).map(|second| (MIDNIGHT + second, "203.0.113.7", "GET", "/a", 200));
        let all = many.chain([(MIDNIGHT + 9, "203.0.113.8", "POST", "/login", 401)]);
        all.map(|(at, client, method, path, status)| form(at, client, method, path, status))
            .collect()
    };
    logs.push(file(
        &directory,
        "nginx.json",
        requests(|at, client, method, path, status| {
            format!("{{\"time_iso8601\":\"2026-11-20T{}+00:00\",\"remote_addr\":\"{client}\",\"request\":\"{method} {path} HTTP/1.1\",\"status\":\"{status}\"}}\n", clock(at))
        }),
    ));
    logs.push(file(
        &directory,
        "caddy.json",
        requests(|at, client, method, path, status| {
            format!("{{\"level\":\"info\",\"ts\":{at}.0,\"request\":{{\"remote_ip\":\"{client}\",\"client_ip\":\"{client}\",\"method\":\"{method}\",\"uri\":\"{path}\"}},\"status\":{status}}}\n")
        }),
    ));
    logs.push(file(
        &directory,
        "own.json",
        requests(|at, client, method, path, status| {
            format!("{{\"when\":{at}000,\"who\":\"{client}\",\"method\":\"{method}\",\"path\":\"{path}\",\"status\":{status}}}\n")
        }),
    ));
    for (place, log) in logs.iter().enumerate() {
        let own: &[&str] = match place {
            4 => &["--time-field", "when", "--ip-field", "who"],
            _ => &[],
        };
        let quota = [log.as_str(), "--quota", "4/minute"];
        let reported = json(&[&quota, own].concat());
        assert_eq!(reported["attempts"], 11, "{log}");
        assert_eq!(reported["quotas"][0]["limited"]["requests"], 6, "{log}");
        assert_eq!(reported["top"][0]["key"], "203.0.113.7", "{log}");
        let logins = ["--match", "POST /login", "--count-if", "4xx"];
        let reported = json(&[&quota, own, &logins].concat());
        assert_eq!(
            (&reported["attempts"], &reported["other_requests"]),
            (&1.into(), &10.into()),
            "{log}"
        );
    }
}

/// A log has the text of the request, and rules compare its normal form.
#[test]
fn match_finds_the_requests_that_a_rule_finds() {
    let directory = directory();
    let requests = [
        "POST /login",
        "POSt /login",
        "POST /login/",
        "POST //login",
        "POST /%6cogin?next=/",
        "POST /x/../login",
        "POST /login;v=1",
        "POST http://shop.example/login",
        "GET /login",
        "HEAD /login",
        "POST /Login",
        "POST /login/x",
    ];
    let lines = requests.iter().zip(0..);
    let log: String = lines
        .map(|(request, second)| line(MIDNIGHT + second, "203.0.113.7", request, 200))
        .collect();
    let log = file(&directory, "access.log", log);
    for (pattern, matching, most) in [
        ("POST /login", "{method: POST, path: /login}", 8),
        ("post /login", "{method: post, path: /login}", 8),
        ("GET /login", "{method: GET, path: /login}", 2),
        ("/login/**", "{path: /login/**}", 11),
        ("* /{page}", "{path: '/{page}'}", 11),
    ] {
        let found = json(&[&log, "--quota", "5/day", "--match", pattern]);
        assert_eq!(found["attempts"], most, "{pattern}");
        // The rule denies all requests that it matches.
        let rules = format!("rules: [{{name: a, match: {matching}, action: deny}}]");
        let rules = file(&directory, "rules.yaml", rules);
        let decided = json(&[&log, "--rules", &rules]);
        assert_eq!(decided["rules"]["forbidden"], most, "{matching}: {decided}");
    }
}

#[test]
fn only_responses_that_count_are_charged() {
    let directory = directory();
    let log: String = (0..20)
        .map(|second| {
            let status = if second % 2 == 0 { 401 } else { 200 };
            line(MIDNIGHT + second, "203.0.113.7", "POST /login", status)
        })
        .collect();
    let log = file(&directory, "access.log", log);
    let reported = json(&[&log, "--quota", "5/day fixed_window", "--count-if", "401"]);
    // The fifth failure is the ninth request: eleven follow.
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 11);
}

#[test]
fn keys_are_those_of_the_argument() {
    let directory = directory();
    let log = [
        "2001:db8:1::1 - alice [20/Nov/2026:00:00:01 +0000] \"GET /a?x HTTP/1.1\" 200 5 \"-\" \"-\" \"198.51.100.1\"\n",
        "2001:db8:1:1::2 - alice [20/Nov/2026:00:00:01 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"-\" \"198.51.100.2, 10.0.0.9\"\n",
        "host.example - - [20/Nov/2026:00:00:01 +0000] \"GET /b HTTP/1.1\" 200 5\n",
    ];
    let log = file(&directory, "access.log", log.concat());
    for (key, keys, without) in [
        ("ip", 3, 0),
        ("ip/48", 2, 0),
        ("user", 2, 1),
        ("path", 2, 0),
        ("user+path", 2, 1),
    ] {
        let reported = json(&[&log, "--suggest", "--key", key]);
        let counts = (&reported["keys"], &reported["without_key"]);
        assert_eq!(counts, (&keys.into(), &without.into()), "{key}");
    }
    let behind = [
        "--trust-proxies",
        "2001:db8::/32,10.0.0.0/8",
        "--quota",
        "1/day",
    ];
    let reported = json(&[&[log.as_str()][..], &behind].concat());
    assert_eq!(
        reported["quotas"][0]["limited"]["requests"], 0,
        "{reported}"
    );
    let fields = file(
        &directory,
        "fields.json",
        "{\"ts\":1795132801.5,\"status\":200,\"request\":{\"headers\":{\"X-Key\":[\"k1\"]}}}\n"
            .repeat(2),
    );
    let reported = json(&[
        &fields,
        "--quota",
        "1/day",
        "--key",
        "field:request.headers.X-Key",
    ]);
    assert_eq!(reported["top"][0]["key"], "\"k1\"");
    let (_, hashed, _) = run(&[
        &fields,
        "--quota",
        "1/day",
        "--key",
        "field:request.headers.X-Key",
        "--hash-keys",
        "--json",
    ]);
    assert!(!hashed.contains("k1\""), "{hashed}");
}

/// Each field is a part of the key.
#[test]
fn keys_are_made_of_several_fields() {
    let directory = directory();
    let line = |tenant: &str, user: &str| {
        format!(
            "{{\"ts\":1795132801.5,\"status\":200,\"tenant\":\"{tenant}\",\"by\":{{\"id\":{user}}}}}\n"
        )
    };
    let log = [
        line("a", "1"),
        line("a", "2"),
        line("b", "1"),
        line("a", "1"),
    ]
    .concat();
    let log = file(&directory, "access.json", log);
    let reported = json(&[
        &log,
        "--quota",
        "1/day",
        "--key",
        "field:tenant+field:by.id",
    ]);
    assert_eq!(
        (&reported["keys"], &reported["without_key"]),
        (&3.into(), &0.into())
    );
    assert_eq!(reported["top"][0]["key"], "(\"a\", \"1\")");
}

/// Names with dots, and in another case.
#[test]
fn fields_are_found_in_objects_and_under_names_with_dots() {
    let directory = directory();
    let lines = [
        "{\"@timestamp\":\"2026-11-20T00:00:01.5Z\",\"source.ip\":\"203.0.113.7\",\"status\":200}\n",
        "{\"@Timestamp\":\"2026-11-20T00:00:01.5Z\",\"source\":{\"port\":1,\"ip\":\"203.0.113.7\"},\"other\":{\"status\":[500]},\"Status\":200}\n",
    ];
    let log = file(&directory, "access.json", lines.concat());
    let reported = json(&[&log, "--quota", "1/day", "--ip-field", "source.ip"]);
    assert_eq!(
        (
            &reported["skipped"],
            &reported["keys"],
            &reported["without_key"]
        ),
        (&0.into(), &1.into(), &0.into())
    );
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 1);
}

/// Some applications log the port, which differs for each connection.
#[test]
fn a_port_is_no_part_of_a_client() {
    let directory = directory();
    let line = |client: &str| {
        format!("{{\"ts\":1795132801.5,\"status\":200,\"remote_addr\":\"{client}\"}}\n")
    };
    let log = [
        "203.0.113.7:4000",
        "203.0.113.7:4001",
        "[2001:db8::1]:4000",
        "2001:db8::2",
        "host:80",
    ];
    let log = file(&directory, "access.json", log.map(line).concat());
    assert_eq!(json(&[&log, "--suggest"])["keys"], 3);
}

/// The other responses use up no units.
#[test]
fn peaks_are_those_of_responses_that_count() {
    let directory = directory();
    let log: String = (0..30)
        .map(|second| {
            let status = if second % 10 == 0 { 401 } else { 200 };
            line(MIDNIGHT + second, "203.0.113.7", "POST /login", status)
        })
        .collect();
    let log = file(&directory, "access.log", log);
    let reported = json(&[&log, "--suggest", "--count-if", "401"]);
    assert_eq!(
        reported["suggestion"]["windows"][2]["peaks"]["max"], 3,
        "{reported}"
    );
    assert_eq!(reported["keys"], 1);
    // Nothing counts at all.
    let page = directory.path().join("report.html").display().to_string();
    let reported = json(&[&log, "--suggest", "--count-if", "500", "--report", &page]);
    assert!(reported["suggestion"].is_null(), "{reported}");
}

/// Two a second, at a quota of one every half second: calculated by hand.
#[test]
fn spread_requests_have_half_a_second_each() {
    let directory = directory();
    let log = line(MIDNIGHT, "203.0.113.7", "GET /a", 200).repeat(2);
    let log = file(&directory, "access.log", log);
    for (spread, limited) in [("even", 0), ("none", 1)] {
        let reported = json(&[&log, "--quota", "2/s burst 1", "--spread", spread]);
        assert_eq!(
            reported["quotas"][0]["limited"]["requests"], limited,
            "{spread}"
        );
    }
}

/// Three clients with peaks calculated by hand: 1, 3 and 12 in a minute.
#[test]
fn peaks_and_the_worst_minute_are_those_counted_by_hand() {
    let directory = directory();
    let mut log = line(MIDNIGHT, "203.0.113.1", "GET /a", 200);
    // Across the end of a minute, in the middle of the window that starts at its half.
    for second in [58, 59, 60] {
        log += &line(MIDNIGHT + second, "203.0.113.2", "GET /a", 200);
    }
    // Ten in the second minute, twelve in the third, six of them in one second.
    for second in (60..70).chain(120..126).chain([130; 6]) {
        log += &line(MIDNIGHT + second, "203.0.113.3", "GET /a", 200);
    }
    let log = file(&directory, "access.log", log);
    let reported = json(&[
        &log,
        "--suggest",
        "--quota",
        "4/minute fixed_window",
        "--what-if",
    ]);
    let windows = reported["suggestion"]["windows"]
        .as_array()
        .expect("windows");
    let peaks = windows.iter().map(|window| {
        let peaks = &window["peaks"];
        (&peaks["p50"], &peaks["max"])
    });
    let expected = [(1, 6), (3, 10), (3, 12), (3, 22)].map(|(p50, max)| (p50.into(), max.into()));
    let expected: Vec<_> = expected.iter().map(|(p50, max)| (p50, max)).collect();
    assert_eq!(peaks.collect::<Vec<_>>(), expected, "{reported}");
    // 12 and a fifth are 14.4, 10 are 12.
    assert_eq!(reported["suggestion"]["quota"], "15/60s burst 12");
    // Four pass of ten, and four of twelve.
    let limited = &reported["quotas"][0]["limited"];
    assert_eq!(
        (&limited["requests"], &limited["worst_minute_requests"]),
        (&14.into(), &8.into())
    );
    assert_eq!(
        (&limited["first"], &limited["worst_minute"]),
        (
            &"2026-11-20T00:01:04Z".into(),
            &"2026-11-20T00:02:00Z".into()
        )
    );
    assert_eq!(reported["quotas"][0]["keys_limited"], 1);
    // A tenth of four is at least one: of 1, 2 and 1, 10 and 12, one each passes.
    let least = &reported["what_if"][0];
    assert_eq!(
        (
            &least["quota"],
            &least["limited"]["requests"],
            &least["keys_limited"]
        ),
        (&"1/60s fixed_window".into(), &21.into(), &2.into())
    );
}

/// Beyond the tracked keys, the numbers are those of a fair sample.
#[test]
fn more_keys_than_are_remembered_are_a_sample() {
    let directory = directory();
    let clients = (0..8_000_u64).flat_map(|client| {
        // One in four sends two requests.
        let client = format!("10.0.{}.{}", client >> 8, client & 255);
        vec![
            line(MIDNIGHT, &client, "GET /a", 200);
            1 + usize::from(client.ends_with(['0', '4', '8']))
        ]
    });
    let log = file(&directory, "access.log", clients.collect::<String>());
    let (_, text, _) = run(&[&log, "--suggest", "--max-keys", "2000"]);
    assert!(text.contains(" attempts, about "), "{text}");
    let reported = json(&[&log, "--suggest", "--max-keys", "2000"]);
    assert_eq!(reported["keys_are_estimated"], true);
    let keys = reported["keys"].as_u64().expect("a number");
    assert!((7_200..8_800).contains(&keys), "{keys}");
    assert_eq!(reported["suggestion"]["windows"][0]["peaks"]["p50"], 1);
    assert_eq!(reported["suggestion"]["windows"][0]["peaks"]["p90"], 2);
}
