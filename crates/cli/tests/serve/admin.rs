//! The admin service: its guard and its routes.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use testkit::{
    child_processes::{eventually, free_port},
    needs,
    servers::Server,
};
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    auth::{login, service, service_of},
    metrics::reported,
    raw_http::{Answer, send},
    service_process::{Service, about},
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Sends a request to the admin service.
pub(crate) async fn operate(service: &Service, line: &str, body: &Value) -> (u16, Value) {
    let port = service.admin;
    let head =
        format!("{line} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json");
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let Answer { status, body, .. } = send(port, &head, &body).await;
    (
        status,
        serde_json::from_str(&body).unwrap_or(Value::String(body)),
    )
}

async fn look(service: &Service, path: &str) -> Value {
    let (status, reported) = operate(service, &format!("GET {path}"), &Value::Null).await;
    assert_eq!(status, 200, "{path}: {reported}");
    reported
}

/// Whether each of some calls about `foo` passes.
async fn calls(service: &Service, count: usize) -> Vec<bool> {
    let mut passed = Vec::new();
    for _ in 0..count {
        let answer = service.call(about("foo", "eve")).await.unwrap();
        passed.push(answer.overall_code() == Code::Ok);
    }
    passed
}

async fn auth(service: &Service) -> u16 {
    send(service.http, &login("", "203.0.113.7"), "")
        .await
        .status
}

#[tokio::test]
async fn token_is_required_if_configured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let service = Service::start(&["--admin-token-file", file.to_str().unwrap()]).await;
    let call = async |field: &str| {
        let host = format!("host: localhost:{}", service.admin);
        let head = format!("GET /v1/rules HTTP/1.1\r\n{host}{field}");
        send(service.admin, &head, "").await
    };
    let none = call("").await;
    assert_eq!(none.status, 401);
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    assert!(!none.body.contains("foo"), "{}", none.body);
    let wrong = TOKEN.replace('f', "e");
    assert_eq!(
        call(&format!("\r\nauthorization: Bearer {wrong}"))
            .await
            .status,
        401
    );
    assert_eq!(
        call(&format!("\r\nauthorization: Bearer {TOKEN}"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn foreign_hosts_and_pages_are_refused() {
    let service = Service::start(&["--admin-host", "admin.example"]).await;
    for (fields, status) in [
        ("host: admin.example", 200),
        ("host: evil.example", 403),
        ("host: admin.example\r\norigin: https://evil.example", 403),
    ] {
        let answer = send(
            service.admin,
            &format!("GET /v1/rules HTTP/1.1\r\n{fields}"),
            "",
        )
        .await;
        assert_eq!(answer.status, status, "{fields}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    // A page can send this form without a preflight request.
    let head = "POST /v1/keys/reset HTTP/1.1\r\nhost: admin.example\r\ncontent-type: text/plain";
    let body = json!({"rule": "rl", "key": "foo=eve"}).to_string();
    assert_eq!(send(service.admin, head, &body).await.status, 415);
    // The other listeners have no such route.
    let answer = send(service.http, "GET /v1/rules HTTP/1.1", "").await;
    assert_eq!(answer.status, 404);
}

#[test]
fn without_a_token_it_stays_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let [rules, token] = ["rules.yaml", "token"].map(|name| folder.path().join(name));
    fs::write(&rules, crate::service_process::RULES).unwrap();
    fs::write(&token, "short").unwrap();
    let port = free_port();
    for (options, reported) in [
        (
            vec!["--admin".to_owned(), format!("0.0.0.0:{port}")],
            "--admin-token-file",
        ),
        (
            vec![
                "--admin-token-file".to_owned(),
                token.to_str().unwrap().to_owned(),
            ],
            "at least 32",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        command.arg("serve").arg(&rules).args(&options);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(reported), "{text}");
    }
}

#[tokio::test]
async fn rules_are_listed_read_again_and_checked() {
    let (service, folder) = service(&[]).await;
    let listed = look(&service, "/v1/rules").await;
    let rules = listed["rules"].as_array().unwrap();
    let names: Vec<_> = rules
        .iter()
        .map(|rule| rule["name"].as_str().unwrap())
        .collect();
    for name in ["rl.foo", "rl.generic_key_heavy", "login"] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    assert_eq!(rules[0]["place"], "rules.yaml:4");
    let one = look(&service, "/v1/rules/login").await;
    assert_eq!(one["limits"][0]["limit"], 2);
    assert!(
        one["place"].as_str().unwrap().ends_with("auth.yaml:2"),
        "{one}"
    );
    assert_eq!(
        operate(&service, "GET /v1/rules/none", &Value::Null)
            .await
            .0,
        404
    );

    let file = folder.path().join("auth.yaml");
    // The command that operators compare with.
    let sum = |file: &Path| {
        let output = Command::new("sha256sum").arg(file).output().unwrap();
        let reported = String::from_utf8(output.stdout).unwrap();
        reported.split_whitespace().next().unwrap().to_owned()
    };
    let limits = sum(&service.folder.path().join("rules.yaml"));
    let requests = sum(&file);
    let in_force = async || look(&service, "/v1/rules").await["files"].clone();
    let files = |requests: &str| {
        json!([
            {"file": "rules.yaml", "sha256": limits},
            {"file": file.to_str().unwrap(), "sha256": requests},
        ])
    };
    assert_eq!(in_force().await, files(&requests));

    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, "rules: [").unwrap();
    let (status, reported) = operate(&service, "POST /v1/rules/reload", &Value::Null).await;
    assert_eq!((status, &reported["accepted"]), (422, &json!(false)));
    assert!(
        look(&service, "/v1/rules").await["fault"]
            .as_str()
            .unwrap()
            .contains("auth.yaml")
    );
    assert_eq!(
        in_force().await,
        files(&requests),
        "not of the files as they are"
    );
    fs::write(&file, text.replace("2/day", "5/day")).unwrap();
    let (status, reported) = operate(&service, "POST /v1/rules/reload", &Value::Null).await;
    assert_eq!((status, &reported["accepted"]), (200, &json!(true)));
    assert_ne!(sum(&file), requests);
    assert_eq!(in_force().await, files(&sum(&file)));
    assert_eq!(look(&service, "/v1/rules").await["fault"], Value::Null);
    assert_eq!(
        look(&service, "/v1/rules/login").await["limits"][0]["limit"],
        5
    );
    service.process.logs("reads the rules again").await;

    for (kind, text, status) in [
        ("descriptors", "domain: new\ndescriptors: []", 200),
        ("descriptors", "domain: [", 422),
        ("requests", text.as_str(), 200),
        ("requests", "rules: [{name: x}]", 422),
        ("other", "", 400),
    ] {
        let path = format!("POST /v1/rules/validate?kind={kind} HTTP/1.1");
        let host = format!("\r\nhost: 127.0.0.1:{}", service.admin);
        let answer = send(service.admin, &(path + &host), text).await;
        assert_eq!(answer.status, status, "{kind}: {}", answer.body);
    }
}

#[tokio::test]
async fn keys_are_read_and_changed() {
    let (service, _folder) = service(&[]).await;
    assert_eq!(calls(&service, 3).await, [true, true, false]);
    let path = "/v1/keys?rule=rl.foo&key=foo=eve";
    let reported = look(&service, path).await;
    assert_eq!(reported["limits"][0]["used"], 3);
    assert_eq!(reported["limits"][0]["remaining"], 0);
    let change = async |what: &str, rule: &str, key: &str, cost: u64| {
        let body = json!({"rule": rule, "key": key, "cost": cost});
        let (status, reported) = operate(&service, &format!("POST /v1/keys/{what}"), &body).await;
        assert_eq!(status, 200, "{reported}");
        reported["limits"][0]["remaining"].as_u64().unwrap()
    };
    assert_eq!(change("refund", "rl", "foo=eve", 2).await, 1);
    assert_eq!(calls(&service, 2).await, [true, false]);
    assert_eq!(change("reset", "rl", "foo=eve", 0).await, 2);
    assert_eq!(change("hit", "rl", "foo=eve", 1).await, 1);
    assert_eq!(calls(&service, 2).await, [true, false]);

    for status in [200, 200, 429] {
        assert_eq!(auth(&service).await, status);
    }
    let reported = look(&service, "/v1/keys?rule=login&key=ip:203.0.113.7").await;
    assert_eq!(reported["limits"][0]["remaining"], 0);
    assert_eq!(change("reset", "login", "ip:203.0.113.7", 0).await, 2);
    assert_eq!(change("hit", "login", "ip:203.0.113.7", 1).await, 1);
    assert_eq!([auth(&service).await, auth(&service).await], [200, 429]);

    for (rule, key, status) in [
        ("none", "str:x", 404),
        ("rl", "unlimited=x", 404),
        ("login", "203.0.113.7", 400),
    ] {
        let body = json!({"rule": rule, "key": key});
        let (reported, _) = operate(&service, "POST /v1/keys/reset", &body).await;
        assert_eq!(reported, status, "{rule} {key}");
    }
    // Each change is logged, without a key.
    let log = service.process.logs_times("operator ", 5).await;
    assert_eq!(log.matches("operator ").count(), 5, "{log}");
    assert!(
        !log.contains("eve") && !log.contains("203.0.113.7"),
        "{log}"
    );
}

#[tokio::test]
async fn quota_is_another_until_it_ends() {
    let (service, _folder) = service(&[]).await;
    let more = json!({"requests_per_unit": 3, "ttl": 3600});
    let (status, reported) = operate(&service, "PUT /v1/rules/rl.foo/quota", &more).await;
    assert_eq!((status, &reported["limits"][0]["limit"]), (200, &json!(3)));
    let about = reported["change"]["about"].as_str().unwrap();
    assert!(about.contains("stay counted"), "{about}");
    assert!(reported["limits"][0]["override"]["until"].is_u64());
    assert_eq!(calls(&service, 4).await, [true, true, true, false]);
    let limit = [r#"ratelimit_limit{policy="rl.foo"}"#];
    assert_eq!(crate::metrics::reported(&service, limit).await, [Some(3.0)]);
    let (_, reported) = operate(&service, "DELETE /v1/rules/rl.foo/quota", &Value::Null).await;
    assert_eq!(reported["limits"][0]["limit"], 2);

    let more = json!({"quota": "3/day"});
    let (status, reported) = operate(&service, "PUT /v1/rules/login/quota", &more).await;
    assert_eq!(status, 200, "{reported}");
    assert_eq!(reported["limits"][0]["window"], 86_400);
    let change = &reported["change"];
    assert_eq!(change["starts_afresh"], false, "{reported}");
    assert_eq!(
        (&change["available"], &change["next_unit"]),
        (&json!(0), &json!(28_800.0))
    );
    let about = change["about"].as_str().unwrap();
    assert!(
        about.contains("`on_change: fresh`") && about.contains("reset"),
        "{about}"
    );
    for status in [200, 200, 200, 429] {
        assert_eq!(auth(&service).await, status);
    }
    operate(&service, "POST /v1/rules/reload", &Value::Null).await;
    let reported = look(&service, "/v1/rules/login").await;
    assert_eq!(reported["limits"][0]["limit"], 2);
    assert_eq!(reported["limits"][0]["override"], Value::Null);

    let hourly = json!({"quota": "3/hour"});
    let (_, reported) = operate(&service, "PUT /v1/rules/login/quota", &hourly).await;
    assert_eq!(reported["limits"][0]["window"], 3_600, "{reported}");
    operate(&service, "DELETE /v1/rules/login/quota", &Value::Null).await;

    let short = json!({"requests_per_unit": 9, "ttl": 1});
    operate(&service, "PUT /v1/rules/rl.foo/quota", &short).await;
    eventually("the end of the quota", async || {
        let reported = look(&service, "/v1/rules/rl.foo").await;
        (reported["limits"][0]["limit"] == 2).then_some(())
    })
    .await;
    for (rule, body) in [
        ("login", json!({"quota": "3/day sliding_log"})),
        ("login", json!({"quota": "nothing"})),
        ("login", json!({"requests_per_unit": 3})),
        ("rl.foo", json!({"quota": "3/day"})),
        ("rl.foo", json!({"requests_per_unit": 3, "ttl": 0})),
        ("rl.foo", json!({"requests_per_unit": -1})),
    ] {
        let (status, _) = operate(&service, &format!("PUT /v1/rules/{rule}/quota"), &body).await;
        assert_eq!(status, 400, "{rule} {body}");
    }
}

#[tokio::test]
async fn limits_are_switched_off_and_on() {
    let (service, _folder) = service(&[]).await;
    let switch = async |body: Value| operate(&service, "PUT /v1/enabled", &body).await;
    let enabled = async || {
        let series = [
            r#"ratelimit_enabled{rule="all"}"#,
            r#"ratelimit_enabled{rule="rl.foo"}"#,
        ];
        reported(&service, series).await
    };
    assert_eq!(calls(&service, 3).await, [true, true, false]);
    assert_eq!(enabled().await, [Some(1.0), None]);
    switch(json!({"enabled": false, "rule": "rl.foo"})).await;
    assert_eq!(calls(&service, 2).await, [true, true]);
    assert_eq!(enabled().await, [Some(1.0), Some(0.0)]);
    for status in [200, 200, 429] {
        assert_eq!(auth(&service).await, status);
    }
    switch(json!({"enabled": true, "rule": "rl.foo"})).await;
    assert_eq!(calls(&service, 1).await, [false]);
    switch(json!({"enabled": false})).await;
    operate(&service, "POST /v1/rules/reload", &Value::Null).await;
    assert_eq!(calls(&service, 1).await, [true]);
    assert_eq!(auth(&service).await, 200);
    assert_eq!(enabled().await, [Some(0.0), None]);
    switch(json!({"enabled": true})).await;
    assert_eq!(calls(&service, 1).await, [false]);
    assert_eq!(auth(&service).await, 429);
    assert_eq!(
        switch(json!({"enabled": false, "rule": "none"})).await.0,
        404
    );
    assert_eq!(switch(json!({"enabled": "no"})).await.0, 400);
}

#[tokio::test]
async fn most_denied_keys_are_revealed_by_option() {
    for reveals in [false, true] {
        let options: &[&str] = if reveals { &["--reveal-keys"] } else { &[] };
        let (service, _folder) = service(options).await;
        calls(&service, 5).await;
        for _ in 0..4 {
            auth(&service).await;
        }
        let reported = look(&service, "/v1/top").await;
        let rows = reported["keys"].as_array().unwrap();
        let counts: Vec<_> = rows
            .iter()
            .map(|row| (&row["rule"], &row["count"]))
            .collect();
        let expected = [(&json!("rl.foo"), &json!(3)), (&json!("login"), &json!(2))];
        assert_eq!(counts, expected);
        assert_eq!(reported["denials"], 5);
        let keys = [&rows[0]["key"], &rows[1]["key"]];
        if reveals {
            assert_eq!(keys, ["str:foo=eve", "ip:203.0.113.7"]);
        } else {
            assert!(!reported.to_string().contains("eve"), "{reported}");
        }
        let of_one = look(&service, "/v1/top?rule=login&n=5").await;
        assert_eq!(of_one["keys"].as_array().unwrap().len(), 1);
        let none = look(&service, "/v1/top?n=0").await;
        assert_eq!(none["keys"], json!([]));
    }
}

/// During an incident an operator has what `top` shows.
#[tokio::test]
async fn keys_are_named_by_the_digests_of_top() {
    let (service, _folder) = service(&[]).await;
    calls(&service, 5).await;
    for _ in 0..4 {
        auth(&service).await;
    }
    let reported = look(&service, "/v1/top").await;
    for row in reported["keys"].as_array().unwrap() {
        let (rule, key) = (row["rule"].as_str().unwrap(), row["key"].as_str().unwrap());
        assert!(key.starts_with("digest:"), "{row}");
        let seen = look(&service, &format!("/v1/keys?rule={rule}&key={key}")).await;
        assert_eq!(seen["limits"][0]["remaining"], 0, "{seen}");
        assert_eq!(seen["key"], key);
        let body = json!({"rule": rule, "key": key});
        let (status, reset) = operate(&service, "POST /v1/keys/reset", &body).await;
        assert_eq!((status, &reset["key"]), (200, &json!(key)), "{reset}");
    }
    assert_eq!(calls(&service, 1).await, [true]);
    assert_eq!(auth(&service).await, 200);
    let unknown = format!("GET /v1/keys?rule=login&key=digest:{}", "0".repeat(16));
    let (status, reported) = operate(&service, &unknown, &Value::Null).await;
    assert_eq!(status, 404);
    let fault = "no key of this digest is among the denied ones: see /v1/top";
    assert_eq!(reported["error"], fault);
}

#[tokio::test]
async fn a_key_is_looked_at_under_the_policy_that_top_names() {
    let rules = "rules:\n  - name: login\n    key: peer_ip\n    quota: [{name: minute, rate: 2/minute}, {name: day, rate: 9/day}]\n";
    let (service, _folder) = service_of(rules, &["--reveal-keys"]).await;
    for _ in 0..4 {
        auth(&service).await;
    }
    let reported = look(&service, "/v1/top").await;
    assert_eq!(reported["keys"][0]["rule"], "login.minute");
    let path = "/v1/keys?rule=login.minute&key=ip:203.0.113.7";
    let seen = look(&service, path).await;
    assert_eq!(seen["rule"], "login");
    let unknown = path.replace("minute", "hour");
    let (status, _) = operate(&service, &format!("GET {unknown}"), &Value::Null).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn keys_are_revealed_by_a_switch() {
    let (service, _folder) = service(&[]).await;
    calls(&service, 5).await;
    for (reveal, is_shown) in [(true, true), (false, false)] {
        let body = json!({"reveal_keys": reveal});
        let (status, switched) = operate(&service, "PUT /v1/reveal-keys", &body).await;
        assert_eq!((status, &switched), (200, &body));
        assert_eq!(look(&service, "/v1/reveal-keys").await, body);
        let reported = look(&service, "/v1/top").await;
        assert_eq!(reported.to_string().contains("eve"), is_shown, "{reported}");
    }
    let wrong = json!({"reveal_keys": "yes"});
    let (status, _) = operate(&service, "PUT /v1/reveal-keys", &wrong).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_blocked_key_is_shown_with_the_rest_of_its_block() {
    let rules = "rules:\n  - {name: login, key: peer_ip, quota: 2/minute, block_for: 1h}\n";
    let (service, _folder) = service_of(rules, &[]).await;
    for _ in 0..3 {
        auth(&service).await;
    }
    let seen = look(&service, "/v1/keys?rule=login&key=ip:203.0.113.7").await;
    let left = seen["blocked_for"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&left), "{seen}");
    let free = look(&service, "/v1/keys?rule=login&key=ip:203.0.113.8").await;
    assert_eq!(free["blocked_for"], Value::Null);
}

/// The output of `top`, and its exit code.
fn top(service: &Service, options: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command.args([
        "top",
        "--once",
        "--admin",
        &format!("127.0.0.1:{}", service.admin),
    ]);
    let output = command.args(options).output().unwrap();
    let text =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.code())
}

#[tokio::test]
async fn top_prints_the_keys_that_are_denied_most() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    let token = ["--admin-token-file", file.to_str().unwrap()];
    let options = [&token[..], &["--reveal-keys"]].concat();
    let (service, _folder) = service(&options).await;
    calls(&service, 5).await;
    for _ in 0..4 {
        auth(&service).await;
    }
    let (reported, code) = top(&service, &token);
    assert_eq!(code, Some(0), "{reported}");
    let rows: Vec<Vec<&str>> = reported
        .lines()
        .skip(3)
        .map(|row| row.split_whitespace().collect())
        .collect();
    let expected = [
        ["3", "rl.foo", "str:foo=eve"],
        ["2", "login", "ip:203.0.113.7"],
    ];
    assert_eq!(rows, expected, "{reported}");
    let (reported, _) = top(
        &service,
        &[&token[..], &["--rule", "login", "-n", "5"]].concat(),
    );
    assert_eq!(reported.lines().count(), 4, "{reported}");
    let (reported, code) = top(&service, &[]);
    assert_eq!(code, Some(2));
    assert!(reported.contains("a bearer token is needed"), "{reported}");
}

#[tokio::test]
async fn reset_on_one_node_is_seen_on_the_other() {
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let options = ["--redis", &url, "--redis-deadline", "20s"];
    let ((one, _a), (two, _b)) = (service(&options).await, service(&options).await);
    assert_eq!(calls(&one, 2).await, [true, true]);
    assert_eq!(calls(&two, 1).await, [false]);
    let reset = json!({"rule": "rl.foo", "key": "foo=eve"});
    assert_eq!(operate(&one, "POST /v1/keys/reset", &reset).await.0, 200);
    assert_eq!(calls(&two, 1).await, [true]);
    assert_eq!(look(&two, "/v1/stats").await["store"]["backend"], "redis");

    // The other node caches its denial, for a short time.
    for status in [200, 200, 429] {
        assert_eq!(auth(&two).await, status);
    }
    let reset = json!({"rule": "login", "key": "ip:203.0.113.7"});
    assert_eq!(operate(&one, "POST /v1/keys/reset", &reset).await.0, 200);
    eventually("a request that passes after the reset", async || {
        (auth(&two).await == 200).then_some(())
    })
    .await;
}
