//! The program by its arguments: output and exit codes.

use std::{fs, path::Path};

use testkit::llm::bodies;

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/rules/files/example.yaml"
);

/// The exit code, the standard output and the standard error.
fn run(arguments: &[&str]) -> (u8, String, String) {
    painted(arguments, false)
}

fn painted(arguments: &[&str], colours: bool) -> (u8, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let arguments = ["tower-ratelimit"].iter().chain(arguments);
    let exit = tower_ratelimit_cli::run(arguments, colours, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit, text(out), text(errors))
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn a_request_is_explained_rule_by_rule() {
    let (exit, out, _) = run(&[
        "check",
        EXAMPLE,
        "--request",
        "POST /api/login",
        "--header",
        "Host: api.example.com",
        "--header",
        "x-cost: 12",
        "--peer",
        "203.0.113.7",
        "--at",
        "2026-11-21T03:00Z",
    ]);
    assert_eq!(exit, 0);
    let (_, explanation) = out.split_once("7 rules, 4 warnings\n").expect("a summary");
    assert_eq!(
        explanation,
        "
POST /api/login from 203.0.113.7 at 2026-11-21T03:00:00Z
  ✗ health       path differs
  ✗ scanners     header differs
  ✓ login        key (hidden), cost 1, login=5/60s sliding_log, blocks for 900s
  ✓ api          key (hidden), cost 12, tier free, api.10-per-1s=10/1s and api.day=10000/86400s fixed_window
  ✗ export       method differs
  ✗ export-acme  path differs
  ✗ night-india  header differs
counted by login, api
"
    );
}

#[test]
fn keys_are_shown_on_demand_only() {
    let check = |more: &[&str]| {
        let request = [
            "check",
            EXAMPLE,
            "--request",
            "POST /api/login",
            "--peer",
            "203.0.113.7",
        ];
        run(&[&request, more].concat()).1
    };
    assert!(check(&["--reveal-keys"]).contains("key 203.0.113.7, cost"));
    assert!(!check(&[]).contains("key 203.0.113.7"));
    assert!(!check(&["--output", "json"]).contains("\"key\": \"203.0.113.7\""));
}

#[test]
fn times_and_outcomes() {
    let check = |line: &str, at: &str, header: &str| {
        let (exit, out, errors) = run(&[
            "check",
            EXAMPLE,
            "--request",
            line,
            "--at",
            at,
            "--header",
            header,
        ]);
        assert_eq!(exit, 0, "{errors}");
        out.lines().last().expect("an outcome").to_owned()
    };
    let country = "cf-ipcountry: IN";
    assert_eq!(
        check("GET /x", "2026-11-20T02:00+05:30", country),
        "counted by night-india"
    );
    assert_eq!(
        check("GET /x", "2026-11-19T20:30Z", country),
        "counted by night-india"
    );
    assert_eq!(
        check("GET /x", "2026-11-21T02:00:00+05:30", country),
        "passes uncounted: no limit applies"
    );
    assert_eq!(
        check("GET /healthz", "2026-11-21T02:00Z", "x: y"),
        "passes uncounted: health allows it"
    );
    assert_eq!(
        check("GET /", "2026-11-21T02:00Z", "user-agent: sqlmap"),
        "answered 403: scanners denies it"
    );
}

#[test]
fn exit_codes() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = file(dir.path(), "good.yaml", "rules: [{name: a, quota: 1/s}]");
    let bad = file(
        dir.path(),
        "bad.yaml",
        "rules: [{name: a, quota: 1/secund}]",
    );
    let exit = |arguments: &[&str]| run(arguments).0;
    assert_eq!(
        run(&["check", &good]),
        (0, "1 rule\n".into(), String::new())
    );
    assert_eq!(exit(&["check", &bad]), 1);
    assert_eq!(exit(&["check", EXAMPLE]), 0);
    assert_eq!(exit(&["check", EXAMPLE, "--deny-warnings"]), 1);
    assert_eq!(exit(&["check", "no-such-file.yaml"]), 2);
    assert_eq!(exit(&["check"]), 2);
    assert_eq!(exit(&["check", &good, "--request", "nonsense"]), 2);
    assert_eq!(
        exit(&[
            "check",
            &good,
            "--request",
            "GET /",
            "--at",
            "2026-02-30T00:00Z"
        ]),
        2
    );
    assert_eq!(
        exit(&["check", &good, "--request", "GET /", "--header", "x"]),
        2
    );
    assert_eq!(exit(&["--help"]), 0);
    let (code, _, errors) = run(&["check", &good, "--against", &bad]);
    assert_eq!(code, 2);
    assert!(errors.contains("R04"), "{errors}");
}

#[test]
fn all_outputs_agree_with_the_exit_code() {
    let (exit, json, _) = run(&["check", EXAMPLE, "--deny-warnings", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((exit, &json["ok"]), (1, &false.into()));
    let arguments = ["check", EXAMPLE, "--output", "github"];
    let (exit, github, _) = run(&[&arguments[..], &["--deny-warnings"]].concat());
    assert!(exit == 1 && github.starts_with("::error "), "{github}");
    let more = ["--request", "GET /x", "--against", EXAMPLE];
    let (exit, github, _) = run(&[&arguments[..], &more].concat());
    assert!(exit == 0 && github.starts_with("::warning "), "{github}");
    assert!(github.contains("a reload would mean\nkept: "), "{github}");
    assert!(github.contains("\nGET /x from "), "{github}");
}

#[test]
fn a_format_is_that_of_files_that_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    file(dir.path(), "a.yaml", "rules: [{name: a, quota: 1/s}]");
    file(
        dir.path(),
        "b.toml",
        "[[rules]]\nname = \"b\"\nquota = \"1/s\"",
    );
    let folder = dir.path().display().to_string();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let conf = file(elsewhere.path(), "c.conf", "rules: [{name: c, quota: 1/s}]");
    let (exit, text, _) = run(&["check", &conf, &folder, "--format", "yaml"]);
    assert_eq!((exit, text.as_str()), (0, "3 rules\n"));
    let broken = file(elsewhere.path(), "d.conf", "rules: [");
    assert_eq!(run(&["check", &folder, &broken, "--format", "yaml"]).0, 1);
    #[cfg(unix)]
    {
        assert_eq!(run(&["check", "/dev/zero", "--format", "yaml"]).0, 1);
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"))
            .args(["check", "/dev/stdin", "--format", "yaml"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the program");
        let mut pipe = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut pipe, b"rules: [{name: a, quota: 1/s}]").expect("written");
        drop(pipe);
        let output = child.wait_with_output().expect("an end");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1 rule\n");
    }
}

#[test]
fn faults_in_three_outputs() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(
        dir.path(),
        "a,b.yaml",
        "rules:\n  - {name: a, quota: 1/s, mdoe: hard}\n",
    );
    let (_, text, _) = run(&["check", &path]);
    assert!(text.ends_with(
        ":2:27: R02 unknown field \"mdoe\" in the rule; did you mean \"mode\"?\n   \
         2 |   - {name: a, quota: 1/s, mdoe: hard}\n     |                           ^^^^\n1 fault\n"
    ), "{text}");
    let (_, github, _) = run(&["check", &path, "--output", "github"]);
    assert!(
        github.contains("a%2Cb.yaml,line=2,col=27,title=R02::unknown field"),
        "{github}"
    );
    let (_, json, _) = run(&["check", &path, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["ok"], false);
    assert_eq!(json["problems"][0]["code"], "R02");
    assert_eq!(json["problems"][0]["line"], 2);
    assert_eq!(json["problems"][0]["suggestion"], "mode");
}

#[test]
fn colours_are_for_terminals() {
    let arguments = ["check", EXAMPLE, "--request", "GET /healthz"];
    assert!(!run(&arguments).1.contains('\x1b'));
    assert!(
        painted(&arguments, true)
            .1
            .contains("\x1b[32m✓\x1b[0m health")
    );
}

#[test]
fn a_reload_is_previewed() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = file(
        dir.path(),
        "old.yaml",
        "rules: [{name: a, quota: 1/s}, {name: b, quota: 1/s}]",
    );
    let new = file(
        dir.path(),
        "new.toml",
        "[[rules]]\nname = \"a\"\nquota = \"1/minute\"\n",
    );
    let (_, out, _) = run(&["check", &new, "--against", &old]);
    assert_eq!(
        out,
        "1 rule\n\na reload would mean\nremoved: b\nrestarted: a\n  a: 1/1s is now 1/60s; all keys start afresh\n"
    );
    let (_, json, _) = run(&["check", &new, "--against", &old, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["changes"]["restarted"][0], "a");
    assert_eq!(json["changes"]["quotas"][0]["starts_afresh"], true);
}

#[test]
fn a_format_can_be_set() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), "rules.conf", "rules: [{name: a, quota: 1/s}]");
    assert_eq!(run(&["check", &path]).0, 2);
    assert_eq!(run(&["check", &path, "--format", "yaml"]).0, 0);
    assert_eq!(run(&["check", &path, "--format", "toml"]).0, 1);
}

#[test]
fn the_schema_is_printed() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules.schema.json");
    assert_eq!(
        run(&["schema"]).1,
        fs::read_to_string(committed).expect("the schema")
    );
}

#[test]
fn a_quota_is_explained() {
    let (exit, out, _) = run(&["explain", "100/minute", "burst", "200"]);
    assert_eq!(exit, 0);
    for line in [
        "A token bucket: after a pause 200 at once, then 100 per 1 minute, one every 600ms.",
        "  1 minute     300",
        "Memory      30 bytes a key",
        "  x-ratelimit-limit: 200",
        "Rust        Quota::per_minute(100).burst(200)",
        "YAML        quota: 100/60s burst 200",
    ] {
        assert!(out.lines().any(|known| known == line), "{line}\n{out}");
    }
    let (exit, _, errors) = run(&["explain", "100/minu"]);
    assert_eq!(exit, 2);
    assert!(
        errors.starts_with("error: unknown unit \"minu\""),
        "{errors}"
    );
}

/// The six files of the page on rules.
#[test]
fn the_files_of_the_page_have_no_fault() {
    let page = include_str!("../../../rules/docs/rules.md");
    let (_, section) = page.split_once("\n## Six files\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let dir = tempfile::tempdir().expect("a folder");
    let blocks = section.split("\n```").skip(1).step_by(2);
    let reported = blocks.enumerate().map(|(at, block)| {
        let (format, text) = block.split_once('\n').expect("a format");
        let path = file(dir.path(), &format!("{at}.{format}"), text);
        let request = ["--request", "GET /search?q=x", "--peer", "203.0.113.7"];
        let (exit, out, errors) = run(&[&["check", &path], &request[..]].concat());
        assert_eq!((exit, errors.as_str()), (0, ""), "{out}");
        let codes = out.lines().filter_map(|line| line.split_once(": W"));
        let codes = codes
            .map(|(_, code)| format!("W{} ", &code[..2]))
            .collect::<String>();
        format!("{codes}{}", out.lines().last().expect("an outcome"))
    });
    // A tier by a header is a warning, explained by the page.
    assert_eq!(
        reported.collect::<Vec<_>>(),
        [
            "passes uncounted: no limit applies",
            "W22 passes uncounted: no limit applies",
            "W22 passes uncounted: no limit applies",
            "passes uncounted: no limit applies",
            "counted by search",
            "counted by all, search",
        ]
    );
}

/// The output equals the page's.
#[test]
fn an_odd_spelling_is_a_warning() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "rules: [{name: health, match: {path: /healthz}, action: allow}]";
    let path = file(dir.path(), "rules.yaml", text);
    let (exit, out, _) = run(&["check", &path, "--request", "GET /api/../healthz"]);
    assert_eq!(exit, 0);
    assert!(out.contains("✗ health  path's spelling differs"), "{out}");
}

#[test]
fn program_alone_prints_its_help() {
    let (code, out, errors) = run(&[]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(out.contains("Usage:") && out.contains("check"), "{out}");
    let (code, out, errors) = run(&["chekc"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(errors.contains("check"), "{errors}");
}

#[cfg(target_os = "linux")]
#[cfg(feature = "serve")]
#[test]
fn an_option_of_two_words_names_them() {
    let (code, _, error) = run(&["serve", "--admin-page", "true"]);
    assert!(code == 2 && error.contains("on, off"), "{error}");
    let (code, help, _) = run(&["serve", "--help"]);
    let page = help.split("--admin-page").nth(1).unwrap_or_default();
    let page = page.split("--reveal-keys").next().unwrap_or_default();
    assert!(code == 0 && page.starts_with(" <on|off>"), "{help}");
    assert!(!page.contains("possible values"), "{page}");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"))
        .arg("schema")
        .stdout(full.expect("a full disk"))
        .output()
        .expect("a process");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("the output cannot be written"), "{errors}");
}

#[test]
fn limits_of_the_gateway_s_are_checked_and_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("llm.yaml");
    let rules = "prices: {\"*\": {input: 2, output: 8}}\nrules: [{name: llm, key: bearer_token, in_flight: 8, \
                 spend: {read: auto}, quota: {rate: 5000000/day, counts: micro_usd}}]\n";
    fs::write(&path, rules).expect("a file");
    let file = path.to_str().expect("a path of characters");
    let request = ["check", file, "--request", "POST /v1/chat"];
    let (exit, out, errors) = run(&request);
    assert_eq!(exit, 0, "{errors}");
    assert!(out.contains("llm.in_flight=8 at a time"), "{out}");
    let (_, out, _) = run(&[&request[..], &["--output", "json"]].concat());
    assert!(out.contains("\"in_flight\": 8"), "{out}");
    fs::write(&path, rules.replace("prices", "# prices")).expect("a file");
    let (exit, out, errors) = run(&["check", file]);
    assert_eq!(exit, 1);
    assert!(format!("{out}{errors}").contains("R14"), "{out}{errors}");
}

#[test]
fn the_charge_for_a_recorded_response_is_that_of_the_layer() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = file(
        folder.path(),
        "llm.yaml",
        "prices: {\"gpt-4.1*\": {input: 2, cached: 0.5, output: 8}, \"*\": {input: 10, output: 30}}\nrules:\n\
         - {name: llm, match: {path: \"/v1/**\"}, key: global, spend: {read: auto}, quota: [{name: requests, rate: \
         60/minute}, {name: tokens, rate: 4000/minute, counts: tokens}, {name: usd, rate: 5000000/day, counts: \
         micro_usd}]}\n",
    );
    let charge = |name: &str, response: &str, given: &[&str]| {
        let response = file(folder.path(), name, response);
        let arguments = ["check", &*rules, "--response", &response];
        let arguments = [&arguments[..], given].concat();
        let (exit, out, errors) = run(&arguments);
        assert_eq!(exit, 0, "{out}{errors}");
        out
    };
    let request = ["--request", "POST /v1/chat/completions"];
    let body = bodies::chat(1_000, 500);
    let out = charge("body.json", &body, &request);
    let expected = "response 200: gpt-4.1-mini, input 1000 (500 cached), output 500, reported\n  \
                    llm.requests  1\n  llm.usd       5250\n  llm.tokens    1500\n";
    assert!(out.ends_with(expected), "{out}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    let json = [&request[..], &["--output", "json"]].concat();
    let out = charge("curl.txt", &format!("{head}{body}"), &json);
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(found["response"]["charged"]["llm.usd"], 5_250);
    assert_eq!(found["response"]["source"], "reported");
    // A key owes one full quota at most.
    let out = charge("large.json", &bodies::chat(9_000, 1_000), &request);
    assert!(out.contains("llm.tokens    8000\n"), "{out}");
    assert!(
        out.ends_with("beyond the debt, and forgotten: 2000\n"),
        "{out}"
    );
    let stream = bodies::chat_stream(&bodies::words(8), None);
    let out = charge("stream.txt", &stream, &request);
    assert!(out.contains("output 16, estimated"), "{out}");
    let refused = "HTTP/1.1 500 Oops\nContent-Type: text/plain\n\nsorry";
    let out = charge("refused.txt", refused, &request);
    assert!(out.contains("response 500: no model"), "{out}");
    assert!(out.contains("llm.tokens    0\n"), "{out}");
    let out = charge("other.json", &body, &["--request", "GET /health"]);
    assert!(
        out.ends_with("response 200: no rule with `spend` charges it\n"),
        "{out}"
    );
}

#[test]
fn a_recorded_response_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = file(folder.path(), "cut.txt", "HTTP/1.1\n\n");
    for (response, error) in [
        (&*cut, "\"HTTP/1.1\" has no status"),
        ("/no/such/file", "No such file"),
    ] {
        let request = [
            "check",
            EXAMPLE,
            "--request",
            "GET /",
            "--response",
            response,
        ];
        let (exit, _, errors) = run(&request);
        assert_eq!(exit, 2, "{errors}");
        assert!(
            errors.contains(response) && errors.contains(error),
            "{errors}"
        );
    }
    let (exit, _, errors) = run(&["check", EXAMPLE, "--response", &cut]);
    assert_eq!(exit, 2);
    assert!(errors.contains("--request"), "{errors}");
}
