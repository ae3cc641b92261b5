//! The admin service of the gateway: that of `serve`, with rules of requests.

use std::{fs, process::Command};

use serde_json::{Value, json};
use testkit::child_processes::eventually;

use crate::{
    gateway_process::{Gateway, RULES, bounded},
    metrics::reported,
    raw_http1::Wire,
    recording_upstream::Upstream,
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Sends a request to the admin service.
pub(crate) async fn operate(gateway: &Gateway, line: &str, body: &str) -> (u16, Value) {
    let mut wire = Wire::connect(gateway.admin).await;
    let host = format!("127.0.0.1:{}", gateway.admin);
    wire.request(&format!(
        "{line} HTTP/1.1\nhost: {host}\ncontent-type: application/json\ncontent-length: {}",
        body.len()
    ))
    .await;
    wire.send(body).await;
    let (head, body) = wire.message().await.unwrap();
    let reported = serde_json::from_str(&body);
    (head.status(), reported.unwrap_or(Value::String(body)))
}

pub(crate) async fn look(gateway: &Gateway, path: &str) -> Value {
    let (status, reported) = operate(gateway, &format!("GET {path}"), "").await;
    assert_eq!(status, 200, "{path}: {reported}");
    reported
}

async fn change(gateway: &Gateway, line: &str, body: Value) -> Value {
    let (status, reported) = operate(gateway, line, &body.to_string()).await;
    assert_eq!(status, 200, "{line}: {reported}");
    reported
}

/// The statuses of some limited requests.
async fn limited<const N: usize>(gateway: &Gateway) -> [u16; N] {
    let mut reported = [0; N];
    for status in &mut reported {
        let mut wire = gateway.connect().await;
        *status = wire.answer("GET /limited HTTP/1.1").await.0.status();
    }
    reported
}

#[tokio::test]
async fn rules_are_listed_read_again_and_checked() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let listed = look(&gateway, "/v1/rules").await;
        assert_eq!(listed["rules"].as_array().unwrap().len(), 1);
        let rule = look(&gateway, "/v1/rules/limited").await;
        assert_eq!(rule["kind"], "request");
        assert_eq!(rule["limits"][0]["limit"], 2);
        assert!(
            rule["place"].as_str().unwrap().ends_with("rules.yaml:3"),
            "{rule}"
        );

        let (status, reported) = operate(&gateway, "GET /v1/keys?rule=limtied&key=str:a", "").await;
        assert_eq!(
            (status, reported["error"].as_str()),
            (404, Some("there is no rule \"limtied\""))
        );

        let file = gateway.folder.path().join("rules.yaml");
        fs::write(&file, "rules: [").unwrap();
        let (status, reported) = operate(&gateway, "POST /v1/rules/reload", "").await;
        assert_eq!((status, &reported["accepted"]), (422, &json!(false)));
        // A gateway has no such route.
        assert!(!reported.to_string().contains("/v1/auth"), "{reported}");
        let loads = [
            r#"ratelimit_config_loads_total{result="failure"}"#,
            "ratelimit_config_last_load_successful",
            r#"ratelimit_limit{policy="limited"}"#,
        ];
        assert_eq!(metrics_of(&gateway, loads).await, [1.0, 0.0, 2.0]);
        fs::write(&file, RULES.replace("2/day", "5/day")).unwrap();
        change(&gateway, "POST /v1/rules/reload", Value::Null).await;
        assert_eq!(metrics_of(&gateway, loads).await, [1.0, 1.0, 5.0]);
        assert_eq!(look(&gateway, "/v1/rules").await["fault"], Value::Null);
        // A change of the file by another program is counted as well.
        fs::write(&file, RULES).unwrap();
        gateway.process.hang_up();
        eventually("the old limit", async || {
            (metrics_of(&gateway, loads).await[2] == 2.0).then_some(())
        })
        .await;

        for (query, text, status) in [
            ("", RULES, 200),
            ("?kind=requests", RULES, 200),
            ("?kind=requests&format=yaml", "rules: [{name: x}]", 422),
            ("?kind=descriptors", "domain: new\ndescriptors: []", 400),
        ] {
            let line = format!("POST /v1/rules/validate{query}");
            assert_eq!(operate(&gateway, &line, text).await.0, status, "{query}");
        }
    })
    .await;
}

async fn metrics_of<const N: usize>(gateway: &Gateway, series: [&str; N]) -> [f64; N] {
    reported(gateway, series).await.map(Option::unwrap)
}

#[tokio::test]
async fn keys_quotas_and_switches_are_at_hand() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        assert_eq!(limited(&gateway).await, [200, 200, 429]);
        let path = "/v1/keys?rule=limited&key=ip:127.0.0.1";
        assert_eq!(look(&gateway, path).await["limits"][0]["remaining"], 0);
        let key = json!({"rule": "limited", "key": "ip:127.0.0.1"});
        change(&gateway, "POST /v1/keys/reset", key.clone()).await;
        assert_eq!(limited(&gateway).await, [200, 200, 429]);
        change(&gateway, "POST /v1/keys/refund", key.clone()).await;
        assert_eq!(limited(&gateway).await, [200, 429]);

        let more = json!({"quota": "4/day", "ttl": 3600});
        let reported = change(&gateway, "PUT /v1/rules/limited/quota", more).await;
        assert_eq!(reported["limits"][0]["limit"], 4);
        change(&gateway, "POST /v1/keys/reset", key.clone()).await;
        assert_eq!(limited(&gateway).await, [200, 200, 200, 200, 429]);
        change(&gateway, "DELETE /v1/rules/limited/quota", Value::Null).await;
        change(&gateway, "POST /v1/keys/reset", key.clone()).await;
        change(&gateway, "POST /v1/keys/hit", key).await;
        assert_eq!(limited(&gateway).await, [200, 429]);

        let enabled = r#"ratelimit_enabled{rule="all"}"#;
        for (switch, status) in [(false, 200), (true, 429)] {
            change(&gateway, "PUT /v1/enabled", json!({"enabled": switch})).await;
            assert_eq!(limited(&gateway).await, [status]);
            let number = if switch { 1.0 } else { 0.0 };
            assert_eq!(metrics_of(&gateway, [enabled]).await, [number]);
        }
        let stats = look(&gateway, "/v1/stats").await;
        assert_eq!(stats["store"]["tracked_keys"], 1, "{stats}");
        // Each change is logged, without a key.
        let log = gateway.process.logs_times("operator ", 9).await;
        assert_eq!(log.matches("operator ").count(), 9, "{log}");
        assert!(!log.contains("ip:127.0.0.1"), "{log}");
    })
    .await;
}

/// By the file. Without `on_change: fresh`, and by the admin service, a raised limit frees no client, and the
/// response has the time until it does.
#[tokio::test]
async fn raised_limit_that_starts_afresh_frees_the_client_at_once() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let file = gateway.folder.path().join("rules.yaml");
        let reload = async |text: String| {
            fs::write(&file, text).unwrap();
            let reported = change(&gateway, "POST /v1/rules/reload", Value::Null).await;
            reported["report"].to_string()
        };
        assert_eq!(limited(&gateway).await, [200, 200, 429]);
        let report = reload(RULES.replace("2/day", "3/day")).await;
        assert!(
            report.contains("its next unit after at most 28800 s"),
            "{report}"
        );
        assert_eq!(limited(&gateway).await, [429]);
        let fresh = RULES.replace("2/day", "3/day, on_change: fresh");
        let report = reload(fresh).await;
        assert!(report.contains("restarted: limited"), "{report}");
        assert_eq!(limited(&gateway).await, [200, 200, 200, 429]);

        let more = json!({"quota": "4/day", "ttl": 3600});
        let reported = change(&gateway, "PUT /v1/rules/limited/quota", more).await;
        assert_eq!(reported["change"]["starts_afresh"], false, "{reported}");
        assert_eq!(reported["change"]["available"], 0, "{reported}");
        assert_eq!(reported["change"]["next_unit"], 21_600.0, "{reported}");
        assert_eq!(limited(&gateway).await, [429]);
        change(&gateway, "DELETE /v1/rules/limited/quota", Value::Null).await;
        assert_eq!(limited(&gateway).await, [429]);
    })
    .await;
}

/// The output of `top`.
fn top(gateway: &Gateway, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    let admin = format!("127.0.0.1:{}", gateway.admin);
    let command = command.args(["top", "--once", "--admin", &admin]);
    let output = command.args(options).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[tokio::test]
async fn top_names_the_keys_that_are_denied_most() {
    bounded(async {
        let upstream = Upstream::start().await;
        for (reveals, key) in [(true, "ip:127.0.0.1"), (false, "digest:")] {
            let options: &[&str] = if reveals { &["--reveal-keys"] } else { &[] };
            let gateway = Gateway::start(upstream.port, options).await;
            assert_eq!(limited(&gateway).await, [200, 200, 429, 429, 429]);
            let table = top(&gateway, &[]);
            let row: Vec<&str> = table.lines().nth(3).unwrap().split_whitespace().collect();
            assert_eq!(row[..2], ["3", "limited"], "{table}");
            assert!(row[2].starts_with(key), "{table}");
            assert_eq!(table.contains("127.0.0.1"), reveals, "{table}");
        }
    })
    .await;
}

#[tokio::test]
async fn door_is_the_one_of_the_service() {
    bounded(async {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        let token = token.to_str().unwrap();
        let options = ["--admin-token-file", token, "--admin-host", "admin.example"];
        let gateway = Gateway::start(upstream.port, &options).await;
        let bearer = format!("authorization: Bearer {TOKEN}");
        for (fields, status) in [
            (format!("host: admin.example\n{bearer}"), 200),
            (format!("host: evil.example\n{bearer}"), 403),
            ("host: admin.example".to_owned(), 401),
        ] {
            let mut wire = Wire::connect(gateway.admin).await;
            wire.request(&format!("GET /v1/rules HTTP/1.1\n{fields}"))
                .await;
            let (head, _) = wire.message().await.unwrap();
            assert_eq!(head.status(), status, "{fields}");
        }
        assert!(top(&gateway, &[]).contains("a bearer token is needed"));
        assert!(top(&gateway, &["--admin-token-file", token]).contains("denials"));
    })
    .await;
}
