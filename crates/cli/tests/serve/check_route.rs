//! `POST /v1/check`: requests and descriptors in JSON.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{needs, servers::Server};

use crate::{
    raw_http::{Answer, send},
    service_process::{Service, about},
};

const RULES: &str = r#"rules:
  - {name: health, match: {path: /healthz}, action: allow}
  - {name: scanners, match: {header: {user-agent: "*sqlmap*"}}, action: deny}
  - name: login
    match: {method: POST, path: /login, host: shop.example}
    key: peer_ip
    quota: {rate: 2/365d, algorithm: fixed_window}
  - {name: all, match: {path: /login}, key: {header: x-user}, quota: {rate: 5/365d, algorithm: fixed_window}}
  - {name: tried, match: {path: /login}, mode: shadow, quota: {rate: 1/365d, algorithm: fixed_window}}
  - {name: pool, match: {path: /pool}, key: global, action: overflow, quota: {rate: 1/365d, algorithm: fixed_window}}
"#;

async fn service(options: &[&str]) -> (Service, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth.yaml");
    fs::write(&file, RULES).unwrap();
    let options = [&["--auth-rules", file.to_str().unwrap()], options].concat();
    (Service::start(&options).await, folder)
}

async fn call(service: &Service, query: &str, question: &Value) -> Answer {
    let lines = format!("POST /v1/check{query} HTTP/1.1\r\ncontent-type: application/json");
    send(service.http, &lines, &question.to_string()).await
}

/// Whether it is allowed, and the remaining units of each policy.
async fn reported(service: &Service, question: &Value) -> (bool, Vec<(String, u64)>) {
    let answer = call(service, "", question).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let reported: Value = serde_json::from_str(&answer.body).unwrap();
    let allowed = reported["allowed"].as_bool().unwrap();
    assert_eq!(reported["retry_after"].is_u64(), !allowed, "{reported}");
    let policies = reported["policies"].as_array().unwrap().iter();
    let policies = policies.map(|policy| {
        assert!(policy["reset_after"].as_u64().is_some(), "{policy}");
        let name = policy["name"].as_str().unwrap().to_owned();
        (name, policy["remaining"].as_u64().unwrap())
    });
    (allowed, policies.collect())
}

fn login() -> Value {
    json!({
        "method": "POST", "path": "/login?next=1", "host": "shop.example",
        "headers": {"x-user": "eve"}, "peer": "203.0.113.7",
    })
}

fn with(mut question: Value, name: &str, value: impl Into<Value>) -> Value {
    question[name] = value.into();
    question
}

async fn rules_decide(service: &Service) {
    let left = |login: u64, all: u64| vec![("login".to_owned(), login), ("all".to_owned(), all)];
    assert_eq!(reported(service, &login()).await, (true, left(1, 4)));
    for _ in 0..2 {
        let dry = with(login(), "dry_run", true);
        assert_eq!(
            reported(service, &dry).await,
            (true, left(1, 4)),
            "it counts nothing"
        );
    }
    let twice = with(login(), "cost", 2);
    assert_eq!(
        reported(service, &twice).await,
        (false, left(1, 4)),
        "nor does a denial"
    );
    assert_eq!(reported(service, &login()).await, (true, left(0, 3)));
    let dry = with(login(), "dry_run", true);
    assert_eq!(reported(service, &dry).await, (false, left(0, 3)));
    // Some servers read this as POST.
    let in_another_case = with(dry, "method", "POSt");
    assert_eq!(
        reported(service, &in_another_case).await,
        (false, left(0, 3))
    );
    let other = with(login(), "peer", "203.0.113.8");
    assert_eq!(reported(service, &other).await, (true, left(1, 2)));
    // A shadow rule counts, and is not reported.
    let get = with(login(), "method", "GET");
    assert_eq!(
        reported(service, &get).await,
        (true, vec![("all".to_owned(), 1)])
    );
}

#[tokio::test]
async fn rules_decide_about_a_request_that_is_described() {
    let (service, _folder) = service(&[]).await;
    rules_decide(&service).await;
    for (path, status) in [("?status=1", 429), ("?x&status=1", 429), ("?status=0", 200)] {
        assert_eq!(
            call(&service, path, &login()).await.status,
            status,
            "{path}"
        );
    }
    let health = json!({"path": "/healthz"});
    assert_eq!(reported(&service, &health).await, (true, Vec::new()));
    let scanner = json!({"path": "/", "headers": {"user-agent": ["sqlmap"]}});
    assert_eq!(call(&service, "?status=1", &scanner).await.status, 403);
    let answer = call(&service, "", &scanner).await;
    assert!(answer.body.contains("\"allowed\":false"), "{}", answer.body);

    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let (service, _folder) = self::service(&["--redis", &url, "--redis-deadline", "20s"]).await;
    rules_decide(&service).await;
}

#[tokio::test]
async fn limits_decide_about_descriptors() {
    let service = Service::start(&[]).await;
    let foo = json!({"domain": "rl", "descriptors": [
        {"entries": [{"key": "foo", "value": "bar"}]},
        {"entries": [{"key": "unmatched"}]},
    ]});
    let left = |left: u64| vec![("rl.foo".to_owned(), left)];
    assert_eq!(reported(&service, &foo).await, (true, left(1)));
    let dry = with(foo.clone(), "dry_run", true);
    assert_eq!(reported(&service, &dry).await, (true, left(1)));
    assert_eq!(reported(&service, &foo).await, (true, left(0)));
    assert_eq!(reported(&service, &dry).await, (false, left(0)));
    assert_eq!(reported(&service, &foo).await, (false, left(0)));
    assert_eq!(call(&service, "?status=1", &foo).await.status, 429);
    // All routes share the counts.
    let answer = service.call(about("foo", "bar")).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 0);
}

#[tokio::test]
async fn questions_that_make_no_sense_are_refused() {
    let (service, _folder) = service(&[]).await;
    for (question, word) in [
        (json!([]), "an object"),
        (json!({}), "path"),
        (json!({"path": "/", "hots": "x"}), "hots"),
        (json!({"path": "ht tp"}), "path"),
        (json!({"path": "login"}), "begins with /"),
        (json!({"path": "shop.example:443"}), "begins with /"),
        (json!({"path": "https://shop.example/login"}), "`host`"),
        (json!({"path": "*"}), "begins with /"),
        (json!({"path": ""}), "begins with /"),
        (with(login(), "method", ""), "method"),
        (with(login(), "host", "https://shop.example"), "host"),
        (with(login(), "host", "eve@shop.example"), "host"),
        (with(login(), "peer", "nobody"), "peer"),
        (with(login(), "cost", -1), "cost"),
        (with(login(), "method", "GET /"), "method"),
        (with(login(), "headers", json!({"x y": "z"})), "x y"),
        (with(login(), "headers", json!({"x": "a\nb"})), "value"),
        (with(login(), "dry_run", 1), "dry_run"),
        (with(login(), "domain", "rl"), "method"),
        (json!({"domain": "rl"}), "descriptor"),
        (
            json!({"path": "/login", "method": "POST", "host": "shop.example"}),
            "peer",
        ),
    ] {
        let answer = call(&service, "", &question).await;
        assert_eq!(answer.status, 400, "{question}: {}", answer.body);
        assert!(answer.body.contains(word), "{word}: {}", answer.body);
    }
    let headers = |number: usize| {
        let fields = (0..number).map(|at| (format!("x-{at}"), json!("")));
        with(login(), "headers", Value::Object(fields.collect()))
    };
    assert_eq!(call(&service, "", &headers(99)).await.status, 200);
    // With the host it is one too many. The last two exceed the capacity of a `HeaderMap`.
    let several = with(login(), "headers", json!({"x": vec![""; 100]}));
    for question in [headers(100), several, headers(24_576), headers(24_577)] {
        let answer = call(&service, "", &question).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains("100 fields"), "{}", answer.body);
    }
    let none = Service::start(&[]).await;
    let answer = call(&none, "", &login()).await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("--auth-rules"), "{}", answer.body);
}

#[tokio::test]
async fn nothing_is_decided_without_a_store() {
    let nobody = format!(
        "redis://127.0.0.1:{}",
        testkit::child_processes::free_port()
    );
    let service = Service::start(&["--redis", &nobody, "--on-failure", "deny"]).await;
    let foo =
        json!({"domain": "rl", "descriptors": [{"entries": [{"key": "foo", "value": "bar"}]}]});
    assert_eq!(call(&service, "", &foo).await.status, 503);
}

#[tokio::test]
async fn rules_that_overflow_are_reported_of_an_allowed_request() {
    let (service, _folder) = service(&[]).await;
    let question = json!({"path": "/pool"});
    for overflow in [Value::Null, json!(["pool"]), json!(["pool"])] {
        let answer = call(&service, "?status=1", &question).await;
        let reported: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, &reported["allowed"]), (200, &json!(true)));
        assert_eq!(reported["overflow"], overflow, "{reported}");
        assert_eq!(reported["retry_after"], Value::Null);
    }
}
