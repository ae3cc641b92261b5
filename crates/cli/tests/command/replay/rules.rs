//! Rule files under trial.

use serde_json::{Value, json as value};

use super::support::{MIDNIGHT, directory, file, json, line, run, small};

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
    let reported = json(&[&log, "--rules", &rules])["rules"].clone();
    assert_eq!(reported["limited"]["requests"], 3 + 4, "{reported}");
    assert_eq!(reported["unseen"], 1);
    let policies = reported["policies"].as_array().expect("policies");
    let limited = |name: &str| {
        let policy = policies.iter().find(|policy| policy["name"] == name);
        policy.expect("a policy")["limited"]["requests"].clone()
    };
    assert_eq!(limited("login"), 3);
    assert_eq!(limited("slow"), 4);
    assert!(limited("all").as_u64() > Some(6), "{reported}");
}

/// Lines of JSON, with milliseconds after midnight.
fn at(times: &[u64]) -> String {
    let line = |at: &u64| {
        let at = MIDNIGHT * 1_000 + at;
        format!(
            "{{\"ts\":{at},\"ip\":\"203.0.113.7\",\"method\":\"GET\",\"uri\":\"/\",\"status\":200}}\n"
        )
    };
    times.iter().map(line).collect()
}

fn tried(log: &str, rules: &str) -> (Value, String) {
    let directory = directory();
    let log = file(&directory, "access.log", log);
    let rules = file(&directory, "rules.yaml", rules);
    let (_, text, errors) = run(&[&log, "--rules", &rules]);
    assert_eq!(errors, "");
    (json(&[&log, "--rules", &rules])["rules"].clone(), text)
}

#[test]
fn requests_of_a_queue_are_delayed_and_not_limited() {
    let log = at(&[0, 0, 0, 0, 0, 60_000, 60_000]);
    let quota = "1/s leaky_bucket queue 3";
    let (reported, text) = tried(&log, &format!("rules: [{{name: a, quota: {quota}}}]"));
    assert_eq!(reported["limited"]["requests"], 1, "{reported}");
    let delayed = value!({"requests": 4, "longest_seconds": 3.0});
    let longest = reported["delayed"]["longest_seconds"]
        .as_f64()
        .expect("a number");
    // Timers have a resolution of milliseconds.
    assert!((3.0..3.005).contains(&longest), "{reported}");
    assert_eq!(reported["delayed"]["requests"], delayed["requests"]);
    assert_eq!(reported["policies"][0]["limited"]["requests"], 1);
    assert!(
        text.contains("\n  delays 4 requests, 57.14 %, by up to 3.0s\n"),
        "{text}"
    );
    // The effect of a quota is equal.
    let directory = directory();
    let log = file(&directory, "access.log", log);
    let reported = json(&[&log, "--quota", quota])["quotas"][0].clone();
    assert_eq!(
        (&reported["limited"]["requests"], &reported["delayed"]),
        (&1.into(), &delayed)
    );
}

/// A waiting request takes the next units: another one finds none.
#[test]
fn requests_that_wait_are_charged_when_their_turn_comes() {
    let rules = "rules: [{name: a, quota: 1/10s, wait: 10s}]";
    let (reported, _) = tried(&at(&[0, 1_000, 2_000, 10_500, 40_000]), rules);
    assert_eq!(reported["limited"]["requests"], 1, "{reported}");
    assert_eq!(reported["delayed"]["requests"], 2, "{reported}");
    let longest = reported["delayed"]["longest_seconds"]
        .as_f64()
        .expect("a number");
    assert!((9.5..9.51).contains(&longest), "{reported}");
    // The last one still waits at the end of the log.
    let (reported, _) = tried(&at(&[0, 1_000]), rules);
    assert_eq!(
        (
            &reported["limited"]["requests"],
            &reported["delayed"]["requests"]
        ),
        (&0.into(), &1.into())
    );
    assert_eq!(reported["policies"][0]["decided"], 2, "{reported}");
}

/// A waiting request whose response does not count leaves its unit to the next one.
#[test]
fn responses_of_requests_that_waited_count_as_others_do() {
    let rules = "rules: [{name: a, quota: 1/10s fixed_window, wait: 10s, count_if: {status: 401}}]";
    let (reported, _) = tried(&at(&[0, 1_000, 2_000, 10_500]), rules);
    assert_eq!(
        (
            &reported["limited"]["requests"],
            &reported["delayed"]["requests"]
        ),
        (&0.into(), &0.into())
    );
}

fn not_in_log(reported: &Value) -> Vec<String> {
    let needs = reported["not_in_log"].as_array().expect("a list").iter();
    needs
        .map(|need| {
            format!(
                "{}: {} {} {}",
                need["part"], need["rules"], need["attempts"], need["instead"]
            )
            .replace('"', "")
        })
        .collect()
}

fn limited(reported: &Value, name: &str) -> Value {
    let mut policies = reported["policies"].as_array().expect("policies").iter();
    let policy = policies.find(|policy| policy["name"] == name);
    policy.map_or(Value::Null, |policy| policy["limited"]["requests"].clone())
}

fn rule_of(name: &str) -> &'static str {
    let mut lines = LOOKING.lines();
    let rule = lines.find(|line| line.contains(&format!("name: {name},")));
    rule.expect("a rule")
}

const LOOKING: &str = r#"
rules:
  - {name: agents, match: {header: {user-agent: "*bot*"}}, key: global, quota: 1/day}
  - {name: links, match: {header: {referer: "*a.example*"}}, key: global, quota: 1/day}
  - {name: plans, match: {header: {x-plan: true}}, quota: 1/day}
  - {name: hosts, match: {host: a.example}, quota: 1/day}
  - {name: users, key: basic_user, on_missing_key: skip, quota: 2/day}
  - {name: tokens, key: bearer_token, quota: 3/day}
  - {name: sessions, key: {cookie: session}, quota: 3/day}
  - {name: tenants, key: {header: x-tenant}, quota: 3/day}
  - {name: accounts, key: {custom: account}, quota: 3/day}
  - {name: inside, match: {authenticated: true}, quota: 1/day}
"#;

#[test]
fn rules_look_at_what_the_combined_format_has() {
    let line = |client: &str, user: &str, referer: &str, agent: &str| {
        format!(
            "{client} - {user} [20/Nov/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"{referer}\" \"{agent}\"\n"
        )
    };
    let log = [
        line("203.0.113.1", "-", "-", "a \\\"bot\\\""),
        line("203.0.113.1", "-", "https://a.example/x", "a bot"),
        line("203.0.113.2", "alice", "https://a.example/", "-"),
        line("203.0.113.3", "alice", "-", "curl"),
        line("203.0.113.4", "alice", "-", "curl"),
        line("203.0.113.1", "-", "-", "curl"),
        line("203.0.113.1", "-", "-", "curl"),
    ];
    // Only one: a request that one rule limits is charged by none.
    for (name, requests) in [
        ("agents", 1),
        ("links", 1),
        ("users", 1),
        ("tokens", 1),
        ("sessions", 1),
        ("tenants", 1),
        ("accounts", 1),
    ] {
        let rule = rule_of(name);
        let (reported, _) = tried(&log.concat(), &format!("rules:\n{rule}\n"));
        assert_eq!(limited(&reported, name), requests, "{name}: {reported}");
        assert_eq!(reported["without_key"], 0, "{name}: {reported}");
    }
    let (reported, text) = tried(&log.concat(), LOOKING);
    let expected = [
        "the header x-plan: [plans] 7 not sent",
        "the host: [hosts] 7 not sent",
        "the bearer token: [tokens] 7 ip",
        "the cookie session: [sessions] 7 ip",
        "the header x-tenant: [tenants] 7 ip",
        "the application's key account: [accounts] 7 ip",
        "who is authenticated: [inside] 7 not sent",
    ];
    assert_eq!(not_in_log(&reported), expected);
    for line in [
        "  the log lacks the header x-plan: the rule plans is tried as if it was not sent",
        "  the log lacks the bearer token: the rule tokens counts by ip instead",
    ] {
        assert!(text.lines().any(|reported| reported == line), "{text}");
    }
    // The common format has neither.
    let common = log.concat().replace("\"-\" \"curl\"", "");
    let (reported, text) = tried(&common, LOOKING);
    assert_eq!(
        not_in_log(&reported)[..2],
        [
            "the header user-agent: [agents] 4 not sent",
            "the header referer: [links] 4 not sent"
        ]
    );
    assert!(
        text.contains("  the log lacks the header user-agent of 4 requests: the rule agents is"),
        "{text}"
    );
}

#[test]
fn rules_look_at_what_lines_of_json_have() {
    let caddy = |client: u8, headers: &str| {
        format!(
            "{{\"ts\":1795132801.5,\"status\":200,\"user_id\":\"\",\"request\":{{\"remote_ip\":\"203.0.113.{client}\",\"method\":\"GET\",\"host\":\"a.example\",\"uri\":\"/\",\"headers\":{{\"Accept\":[\"*/*\"]{headers}}}}}}}\n"
        )
    };
    let log = [
        caddy(1, ",\"User-Agent\":[\"a bot\"],\"X-Plan\":[\"pro\"]"),
        caddy(1, ",\"User-Agent\":[\"a bot\"],\"X-Plan\":[\"pro\"]"),
        caddy(
            2,
            ",\"X-Tenant\":[\"t\"],\"Authorization\":[\"REDACTED\"],\"Cookie\":[\"REDACTED\"]",
        ),
    ];
    for (name, requests) in [("agents", 1), ("plans", 1), ("hosts", 1)] {
        let rule = rule_of(name);
        let (reported, _) = tried(&log.concat(), &format!("rules:\n{rule}\n"));
        assert_eq!(limited(&reported, name), requests, "{name}: {reported}");
        assert_eq!(not_in_log(&reported), [""; 0], "{name}");
    }
    let (reported, _) = tried(&log.concat(), LOOKING);
    let expected = [
        "the bearer token: [tokens] 1 ip",
        "the cookie session: [sessions] 1 ip",
        "the application's key account: [accounts] 3 ip",
        "who is authenticated: [inside] 3 not sent",
    ];
    assert_eq!(not_in_log(&reported), expected);

    let nginx = "{\"msec\":\"1795132801.5\",\"remote_addr\":\"203.0.113.1\",\"request\":\"GET / HTTP/1.1\",\"status\":\"200\",\"http_x_plan\":\"pro\",\"http_authorization\":\"Bearer t\",\"cookie_session\":\"s\",\"http_host\":\"a.example\",\"http_user_agent\":\"\",\"remote_user\":\"\"}\n";
    let (reported, _) = tried(&nginx.repeat(2), LOOKING);
    assert_eq!(limited(&reported, "plans"), 1, "{reported}");
    assert_eq!(limited(&reported, "hosts"), 1, "{reported}");
    let expected = [
        "the header referer: [links] 2 not sent",
        "the header x-tenant: [tenants] 2 ip",
        "the application's key account: [accounts] 2 ip",
        "who is authenticated: [inside] 2 not sent",
    ];
    assert_eq!(not_in_log(&reported), expected);
}

/// Neither a rule that denies nor a missing key counts as a limit.
#[test]
fn rejections_without_a_limit_are_counted_separately() {
    let rules = "rules: [{name: no, match: {path: /login}, action: deny}, {name: a, match: {path: /a}, key: {query: k}, on_missing_key: reject, quota: 1/s}]";
    let (reported, text) = tried(&small(), rules);
    assert_eq!(
        (
            &reported["limited"]["requests"],
            &reported["forbidden"],
            &reported["without_key"]
        ),
        (&0.into(), &1.into(), &10.into())
    );
    assert!(
        text.contains("  attempts that a rule answers 403: 1\n"),
        "{text}"
    );
}

/// Older versions of Caddy hide credentials by an empty list; newer ones write a word.
#[test]
fn credentials_that_are_hidden_are_not_in_the_log() {
    let line = |hidden: &str| {
        format!(
            "{{\"ts\":1795132801.5,\"status\":200,\"request\":{{\"remote_ip\":\"203.0.113.7\",\"method\":\"GET\",\"host\":\"a.example\",\"uri\":\"/\",\"headers\":{{\"Authorization\":{hidden},\"Cookie\":{hidden}}}}}}}\n"
        )
    };
    for hidden in ["[]", "[\"REDACTED\"]"] {
        for name in ["tokens", "sessions"] {
            let rule = rule_of(name).replace("3/day", "2/day");
            let (reported, text) = tried(&line(hidden).repeat(5), &format!("rules:\n{rule}\n"));
            // The client's address stands in for it.
            assert_eq!(limited(&reported, name), 3, "{hidden}: {reported}");
            assert_eq!(reported["without_key"], 0, "{hidden}: {reported}");
            assert_eq!(not_in_log(&reported).len(), 1, "{hidden}: {reported}");
            assert!(text.contains("counts by ip instead"), "{text}");
        }
    }
}

/// Requests that a rule with overflow denies are counted for the rule, and are not limited.
#[test]
fn requests_that_overflow_pass() {
    let log = at(&[0, 0, 0, 0, 0]);
    let rules = "rules: [{name: pool, key: global, quota: 2/day, action: overflow}, {name: all, key: global, quota: 4/day}]";
    let (reported, text) = tried(&log, rules);
    assert_eq!(reported["limited"]["requests"], 1, "{reported}");
    // The fifth request is denied by the other rule, which is all that counts.
    assert_eq!(limited(&reported, "pool"), 2, "{reported}");
    assert_eq!(limited(&reported, "all"), 1, "{reported}");
    let policies = reported["policies"].as_array().expect("policies");
    let overflows = policies.iter().map(|policy| policy["overflows"] == true);
    assert_eq!(overflows.filter(|overflows| *overflows).count(), 1);
    assert!(text.contains(", overflows\n"), "{text}");
}

/// Each rule reports the keys that it limits, also in shadow mode: it may be enforced tomorrow.
#[test]
fn each_rule_names_the_keys_that_it_limits() {
    let rules = "rules: [{name: a, quota: [{rate: 4/minute, name: few}, {rate: 100/day, name: many}]}, {name: b, key: {query: k}, on_missing_key: skip, quota: 2/day}, {name: s, mode: shadow, key: global, quota: 1/minute}]";
    let directory = directory();
    let mut log = small();
    for (second, key) in (10..16).map(|second| (second, second % 2)) {
        let request = format!("GET /?k={key}");
        log += &line(
            MIDNIGHT + second,
            &format!("198.51.100.{second}"),
            &request,
            200,
        );
    }
    let log = file(&directory, "access.log", log);
    let rules = file(&directory, "rules.yaml", rules);
    let page = directory.path().join("report.html").display().to_string();
    let arguments = [log.as_str(), "--rules", &rules, "--report", &page];
    let reported = json(&arguments);
    let policies = reported["rules"]["policies"].as_array().expect("policies");
    let limits = |name: &str| {
        let policy = policies.iter().find(|policy| policy["name"] == name);
        let policy = policy.expect("a policy");
        (policy["keys_limited"].clone(), policy["top"].clone())
    };
    let key = |key: &str, limited: u64| {
        value!([{
            "key": key, "limited": limited, "of_others_at_most": 0, "counted_by": null, "instead_of": null,
        }])
    };
    assert_eq!(
        limits("a.few"),
        (1.into(), key("203.0.113.7", 6)),
        "{reported}"
    );
    assert_eq!(limits("a.many"), (0.into(), value!([])));
    let (keys, top) = limits("b");
    assert_eq!(
        (&keys, &top[0]["limited"], &top[1]["limited"]),
        (&2.into(), &1.into(), &1.into())
    );
    let (keys, top) = limits("s");
    assert_eq!(
        (keys, &top[0]["limited"]),
        (1.into(), &16.into()),
        "{reported}"
    );
    let (_, text, _) = run(&arguments);
    for lines in [
        "\n  a.few   decides            17, limits             6 of 1 key\n",
        "\n  b       decides             6, limits             2 of 2 keys\n",
        "\n  s       decides            17, limits            16 of 1 key, in the shadow\n",
        "\nlimited most by a.few\n            6  203.0.113.7\n",
        "\nlimited most by s, in the shadow\n           16  ",
    ] {
        assert!(text.contains(lines), "{lines}{text}");
    }
    assert!(!text.contains("limited most by the rules"), "{text}");
    let page = std::fs::read_to_string(page).expect("a page");
    let row = "<tr><td>s, in the shadow<td>16<td>94.12 %<td>1<td></tr>";
    assert!(page.contains(row), "{page}");
}

/// Rules that evict keys let more requests pass.
#[test]
fn evicted_keys_of_rules_are_reported() {
    let directory = directory();
    let log: String = (0..4_000)
        .map(|client| {
            line(
                MIDNIGHT,
                &format!("10.0.{}.{}", client >> 8, client & 255),
                "GET /",
                200,
            )
        })
        .collect();
    let log = file(&directory, "access.log", log);
    let rules = file(&directory, "rules.yaml", "rules: [{name: a, quota: 4/day}]");
    let arguments = [log.as_str(), "--rules", &rules, "--max-keys", "500"];
    assert!(json(&arguments)["evictions"].as_u64() > Some(1_000));
    let (_, text, _) = run(&arguments);
    assert!(text.contains("keys forgotten for want of room"), "{text}");
}

/// The header if the request has it, else the address: the key alone does not reveal the source.
#[test]
fn first_of_names_the_key_that_it_counted_by() {
    let directory = directory();
    let request = |key: &str, ip: &str| {
        format!(
            "{{\"ts\":{MIDNIGHT},\"ip\":\"{ip}\",\"method\":\"GET\",\"uri\":\"/\",\"status\":200,\"http_x_api_key\":\"{key}\"}}\n"
        )
    };
    let log = request("k1", "203.0.113.7").repeat(6) + &request("-", "203.0.113.8").repeat(5);
    let log = file(&directory, "access.log", log);
    let reported = |wait: &str| {
        let rules = format!(
            "rules: [{{name: a, key: {{first_of: [{{secret_header: X-Api-Key}}, client_ip]}}, quota: 2/day{wait}}}]"
        );
        let rules = file(&directory, "rules.yaml", rules);
        let (_, text, errors) = run(&[&log, "--rules", &rules]);
        assert_eq!(errors, "");
        (
            json(&[&log, "--rules", &rules])["rules"]["policies"][0]["top"].clone(),
            text,
        )
    };
    let (top, text) = reported("");
    assert_eq!(top[0]["counted_by"], "header x-api-key", "{top}");
    assert_eq!(top[0]["limited"], 4);
    assert_eq!(
        (&top[1]["counted_by"], &top[1]["key"]),
        (&"client_ip".into(), &"203.0.113.8".into())
    );
    assert_eq!(top[1]["instead_of"], Value::Null);
    assert!(
        text.contains("            3  203.0.113.8  by client_ip\n"),
        "{text}"
    );
    assert!(text.contains("  by header x-api-key\n"), "{text}");
    // Waiting requests are decided later, between others.
    let (top, _) = reported(", wait: 25h");
    let by = [0, 1].map(|place| top[place]["counted_by"].clone());
    assert_eq!(by, ["header x-api-key", "client_ip"], "{top}");
}

/// A log without tokens: the report shows the key that stands in, and not its digest.
#[test]
fn a_key_that_stands_in_is_named_as_itself() {
    let log = line(MIDNIGHT, "203.0.113.7", "GET /a", 200).repeat(5);
    for (key, instead_of) in [
        ("bearer_token", "bearer_token"),
        ("{first_of: [bearer_token, client_ip]}", "bearer_token"),
        ("{cookie: session}", "cookie session"),
        (
            "{first_of: [{custom: account}, client_ip]}",
            "custom account",
        ),
    ] {
        let rules = format!("rules: [{{name: a, key: {key}, quota: 2/day}}]");
        let (reported, text) = tried(&log, &rules);
        let top = reported["policies"][0]["top"][0].clone();
        assert_eq!(
            top,
            value!({
                "key": "203.0.113.7", "limited": 3, "of_others_at_most": 0,
                "counted_by": "ip", "instead_of": instead_of,
            }),
            "{key}"
        );
        let expected = format!("            3  203.0.113.7  by ip instead of {instead_of}\n");
        assert!(text.contains(&expected), "{text}");
    }
}

/// A log has neither the ends of requests nor the units of responses: the other limits are tried.
#[test]
fn limits_that_responses_decide_are_listed_and_not_tried() {
    let rules = "rules:
  - {name: api, in_flight: 1, quota: 2/day}
  - {name: sockets, in_flight: {max: 3, lease: 1m}}
  - {name: llm, spend: {read: auto}, quota: [{name: requests, rate: 4/day}, {name: tokens, rate: 9/day, counts: tokens}]}
";
    let (reported, text) = tried(&at(&[0, 0, 0, 0, 0]), rules);
    let limits = [
        ("api", "in_flight"),
        ("sockets", "in_flight"),
        ("llm", "spend"),
    ];
    let expected = limits.map(|(rule, limit)| value!({"rule": rule, "limit": limit}));
    assert_eq!(reported["not_tried"], value!(expected));
    assert_eq!(reported["limited"]["requests"], 3);
    let policies = reported["policies"].as_array().expect("policies");
    let names: Vec<_> = policies.iter().map(|policy| &policy["name"]).collect();
    assert_eq!(names, ["api", "llm.requests"]);
    for line in [
        "  not tried: `in_flight` of the rule api, since a log lacks the ends of requests\n",
        "  not tried: `spend` of the rule llm, since a log lacks the units of responses\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
