//! `replay`: logs of every kind, and what quotas and rules would have done to them.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;
use tower_ratelimit::{Key, LocalLimiter, ManualClock, Quota, Timestamp};

/// 2026-11-20T00:00:00Z.
const MIDNIGHT: u64 = 1_795_132_800;

/// The exit code, what is printed, and what goes to the standard error stream.
fn run(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let arguments = ["tower-ratelimit", "replay"].iter().chain(arguments);
    let exit = tower_ratelimit_cli::run(arguments, false, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit, text(out), text(errors))
}

fn json(arguments: &[&str]) -> Value {
    let (exit, out, errors) = run(&[arguments, &["--json"]].concat());
    assert_eq!(exit, 0, "{errors}");
    serde_json::from_str(&out).expect("JSON")
}

fn file(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

fn clock(second: u64) -> String {
    let second = second - MIDNIGHT;
    format!(
        "{:02}:{:02}:{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// A line of the combined format.
fn line(second: u64, client: &str, request: &str, status: u16) -> String {
    format!(
        "{client} - - [20/Nov/2026:{} +0000] \"{request} HTTP/1.1\" {status} 5 \"-\" \"curl\"\n",
        clock(second)
    )
}

/// Ten requests of one client in ten seconds, and one of another.
fn small() -> String {
    let mut log: String = (0..10)
        .map(|second| line(MIDNIGHT + second, "203.0.113.7", "GET /a", 200))
        .collect();
    log += &line(MIDNIGHT + 9, "203.0.113.8", "POST /login", 401);
    log
}

#[test]
fn a_log_is_told_in_text() {
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

the most that a key asks for in
               p50       p90       p99     p99.9       max
     1 s         1         1         1         1         1
    10 s         1        10        10        10        10
   1 min         1        10        10        10        10
     1 h         1        10        10        10        10

suggested: 12/minute burst 12
  Quota::per_minute(12).burst(12)
  a fifth more than what 999 of 1,000 keys ask for in a minute, and at once in ten seconds
"
    );
    let (told, what_if) = out.split_once("\nwhat if ").expect("what if");
    assert_eq!(told, expected);
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

/// Each format says the same of the same requests.
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
        let told = json(&[&quota, own].concat());
        assert_eq!(told["attempts"], 11, "{log}");
        assert_eq!(told["quotas"][0]["limited"]["requests"], 6, "{log}");
        assert_eq!(told["top"][0]["key"], "203.0.113.7", "{log}");
        let logins = ["--match", "POST /login", "--count-if", "4xx"];
        let told = json(&[&quota, own, &logins].concat());
        assert_eq!(
            (&told["attempts"], &told["other_requests"]),
            (&1.into(), &10.into()),
            "{log}"
        );
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
    let told = json(&[&log, "--quota", "5/day fixed_window", "--count-if", "401"]);
    // The fifth failure is the ninth request: eleven come after it.
    assert_eq!(told["quotas"][0]["limited"]["requests"], 11);
}

#[test]
fn keys_are_what_is_asked_for() {
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
        let told = json(&[&log, "--suggest", "--key", key]);
        let counts = (&told["keys"], &told["without_key"]);
        assert_eq!(counts, (&keys.into(), &without.into()), "{key}");
    }
    let behind = [
        "--trust-proxies",
        "2001:db8::/32,10.0.0.0/8",
        "--quota",
        "1/day",
    ];
    let told = json(&[&[log.as_str()][..], &behind].concat());
    assert_eq!(told["quotas"][0]["limited"]["requests"], 0, "{told}");
    let fields = file(
        &directory,
        "fields.json",
        "{\"ts\":1795132801.5,\"status\":200,\"request\":{\"headers\":{\"X-Key\":[\"k1\"]}}}\n"
            .repeat(2),
    );
    let told = json(&[
        &fields,
        "--quota",
        "1/day",
        "--key",
        "field:request.headers.X-Key",
    ]);
    assert_eq!(told["top"][0]["key"], "\"k1\"");
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

#[test]
fn rules_are_tried_by_the_layer_itself() {
    let directory = directory();
    let rules = file(
        &directory,
        "rules.yaml",
        "rules:\n  - {name: login, match: {method: POST, path: /login}, quota: 2/minute, count_if: {status: 401}}\n  \
         - {name: all, quota: 4/minute, mode: shadow}\n  - {name: slow, match: {path: /slow}, quota: 1/hour, wait: 1s}\n",
    );
    let mut log = small();
    for second in 20..25 {
        log += &line(MIDNIGHT + second, "203.0.113.9", "POST /login", 401);
        log += &line(MIDNIGHT + second, "203.0.113.10", "POST /login", 200);
        log += &line(MIDNIGHT + second, "203.0.113.11", "GET /slow", 200);
    }
    log += "203.0.113.7 - - [20/Nov/2026:00:00:40 +0000] \"\\x16\" 400 0\n";
    let log = file(&directory, "access.log", log);
    let told = json(&[&log, "--rules", &rules])["rules"].clone();
    assert_eq!(told["limited"]["requests"], 3 + 4, "{told}");
    assert_eq!(told["unseen"], 1);
    let policies = told["policies"].as_array().expect("policies");
    let limited = |name: &str| {
        let policy = policies.iter().find(|policy| policy["name"] == name);
        policy.expect("a policy")["limited"]["requests"].clone()
    };
    assert_eq!(limited("login"), 3);
    assert_eq!(limited("slow"), 4);
    assert!(limited("all").as_u64() > Some(6), "{told}");
}

#[test]
fn exit_codes_and_messages() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    let empty = file(&directory, "empty.log", "");
    let quota = ["--quota", "4/minute"];
    let exit = |arguments: &[&str]| run(arguments).0;
    assert_eq!(exit(&[&[log.as_str()][..], &quota].concat()), 0);
    assert_eq!(exit(&[&[empty.as_str()][..], &quota].concat()), 1);
    assert_eq!(
        exit(&[&[log.as_str(), "--fail-above", "50%"][..], &quota].concat()),
        3
    );
    assert_eq!(
        exit(&[&[log.as_str(), "--fail-above", "60"][..], &quota].concat()),
        0
    );
    for (arguments, message) in [
        (&[log.as_str()][..], "nothing to replay against"),
        (&["no.log", "--suggest"], "no.log: No such file"),
        (&[&log, "--quota", "4/minit"], "unknown unit \"minit\""),
        (
            &[&log, "--what-if", "--suggest"],
            "--what-if goes around a --quota",
        ),
        (
            &[&log, "--suggest", "--key", "ip/200"],
            "\"ip/200\" is no key",
        ),
        (
            &[&log, "--suggest", "--match", "login"],
            "matches no request",
        ),
        (
            &[&log, "--suggest", "--count-if", "6xx"],
            "\"6xx\" is no status",
        ),
        (
            &[&log, "--suggest", "--reorder", "soon"],
            "\"soon\" is no time",
        ),
        (
            &[&log, "--suggest", "--fail-above", "x"],
            "\"x\" is no share",
        ),
        (&[&log, "--suggest", "--trust-proxies", "x"], "x"),
    ] {
        let (exit, out, errors) = run(arguments);
        assert_eq!((exit, out.as_str()), (2, ""), "{arguments:?}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
}

#[test]
fn the_report_has_the_numbers_of_the_json() {
    let directory = directory();
    let hostile = line(MIDNIGHT, "</script><b>", "GET /a", 200);
    let log = file(&directory, "access.log", small() + &hostile.repeat(5));
    let page = directory.path().join("report.html");
    let report = page.display().to_string();
    let told = json(&[
        &log,
        "--quota",
        "4/minute",
        "--what-if",
        "--report",
        &report,
    ]);
    let page = fs::read_to_string(page).expect("a page");
    let (_, data) = page.split_once("id=\"replay\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("an end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data, told);
    assert_eq!(page.matches("<svg").count(), 3);
    for fetched in ["<b>", "://", "src=", "href="] {
        assert!(!page.contains(fetched), "{page}");
    }
}

#[test]
fn a_pipe_and_a_compressed_file_are_read() {
    let directory = directory();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(small().as_bytes()).expect("bytes");
    let packed = file(&directory, "access.log.1", packed.finish().expect("bytes"));
    let mut process = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"))
        .args(["replay", &packed, "-", "--quota", "4/day", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut input = process.stdin.take().expect("a pipe");
    input.write_all(small().as_bytes()).expect("bytes");
    drop(input);
    let output = process.wait_with_output().expect("an end");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&told["attempts"], &told["late"]), (&22.into(), &0.into()));
    assert_eq!(told["quotas"][0]["limited"]["requests"], 16);
}

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
