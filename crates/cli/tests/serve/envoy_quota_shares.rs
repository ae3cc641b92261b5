//! Shares of limits: options, and a real Envoy that decides by them.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use serde_json::Value;
use testkit::{
    child_processes::{Process, eventually, find, free_port},
    needs,
    servers::Server,
};
use tokio::task::JoinSet;
use tower_ratelimit_envoy::protobuf_messages::{Code, RateLimitRequest};

use crate::{
    admin::operate,
    metrics::reported,
    raw_http::{send, try_send},
    service_process::{Service, about},
};

const PAGE: &str = include_str!("../../../envoy/docs/quota-service.md");

const ENVOY: &str = include_str!("../../../envoy/docs/quotas.yaml");

/// The page's file for an Envoy that listens on the first port, with its service on the second one.
pub(crate) fn config_of_page(listener: u16, grpc: u16) -> String {
    let (_, excerpt) = PAGE.split_once("```yaml\nno_assignment_behavior").unwrap();
    for line in excerpt.split_once("```").unwrap().0.lines() {
        assert!(ENVOY.contains(line.trim()), "{line}");
    }
    let mut config = ENVOY.to_owned();
    for (port, free) in [(8888, listener), (8081, grpc)] {
        let place = |port: u16| format!("port_value: {port}}}");
        assert!(config.contains(&place(port)), "{port}");
        config = config.replace(&place(port), &place(free));
    }
    config
}

/// Starts an Envoy, whose file and log are in this folder.
pub(crate) fn start_envoy(config: &str, folder: &Path) -> Process {
    let file = folder.join("envoy.yaml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(find("envoy", Some("ENVOY")).unwrap());
    command
        .arg("--config-path")
        .arg(&file)
        .args(["--use-dynamic-base-id", "--concurrency", "1"]);
    Process::start(&mut command, &folder.join("envoy.log"))
}

fn rules_of_page() -> &'static str {
    let (_, rules) = PAGE.split_once("```yaml\n").unwrap();
    rules.split_once("```").unwrap().0
}

/// The statuses of requests at the same time.
async fn statuses(listener: u16, user: &'static str, number: usize) -> Vec<u16> {
    let mut requests = JoinSet::new();
    for _ in 0..number {
        requests.spawn(async move {
            let lines = format!("GET / HTTP/1.1\r\nx-user: {user}");
            send(listener, &lines, "").await.status
        });
    }
    requests.join_all().await
}

/// A service with the rules of the page, and its Envoy, which listens on this port.
async fn started(options: &[&str]) -> (Service, u16, Process) {
    let service = Service::start(options).await;
    fs::write(service.folder.path().join("rules.yaml"), rules_of_page()).unwrap();
    service.process.hang_up();
    eventually("the rules of the page", async || {
        service.process.log().contains("2 limits").then_some(())
    })
    .await;
    let listener = free_port();
    let config = config_of_page(listener, service.grpc);
    let envoy = start_envoy(&config, service.folder.path());
    eventually("an Envoy that listens", async || {
        try_send(listener, "GET / HTTP/1.1", "").await.map(drop)
    })
    .await;
    (service, listener, envoy)
}

/// The response to the page's request about the shares of a user.
async fn shares(service: &Service, user: &str) -> Value {
    let path = "/v1/shares?domain=shop&bucket=user=";
    assert!(PAGE.contains(&format!("'http://127.0.0.1:6070{path}eve'")));
    let (status, shares) = operate(service, &format!("GET {path}{user}"), &Value::Null).await;
    assert_eq!(status, 200, "{shares}");
    shares
}

#[tokio::test]
async fn page_leads_to_an_envoy_that_decides_by_itself() {
    needs!(envoy);
    let (service, listener, _envoy) = started(&["--rlqs"]).await;
    assert_eq!(statuses(listener, "eve", 1).await, [429], "without a share");
    let began_at = Instant::now();
    eventually("a share", async || {
        (statuses(listener, "eve", 1).await == [200]).then_some(())
    })
    .await;
    // As many as it takes to use up the share.
    let passed = AtomicUsize::new(1);
    eventually("a limited request", async || {
        let statuses = statuses(listener, "eve", 200).await;
        let of_these = statuses.iter().filter(|status| **status == 200);
        passed.fetch_add(of_these.count(), Relaxed);
        statuses.contains(&429).then_some(())
    })
    .await;
    let passed = passed.into_inner();
    let most = 10.0 + 90.0 * began_at.elapsed().as_secs_f64();
    assert!((passed as f64) <= most, "{passed} of {most}");
    let series = [
        "ratelimit_rlqs_streams",
        "ratelimit_rlqs_buckets",
        "ratelimit_rlqs_refused_total{reason=\"unread\"}",
    ];
    // Requests without the header have no bucket.
    let numbers = reported(&service, series).await;
    assert_eq!(numbers, [Some(1.0), Some(1.0), None]);
    let shares = shares(&service, "eve").await;
    let [client] = shares["clients"].as_array().unwrap().as_slice() else {
        panic!("{shares}");
    };
    assert_eq!(client["client"], "127.0.0.1");
    let share = &client["share"];
    let rate = share["rate"].as_f64().unwrap();
    assert!((1.0..=90.0).contains(&rate), "{shares}");
    // A stream has no end of its own.
    service.process.terminate();
    eventually("an end", async || {
        let log = service.process.log();
        log.contains("all requests are answered").then_some(())
    })
    .await;
}

/// Units come out of the limit's own count, so a window of a day has exactly its requests: those that Envoy lets pass
/// by itself, and those of calls.
#[tokio::test]
async fn envoy_and_calls_pass_the_requests_of_a_window_together() {
    needs!(envoy);
    let (service, listener, _envoy) = started(&["--rlqs"]).await;
    for _ in 0..10 {
        service.call(about_trial()).await.unwrap();
    }
    let over = r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="user_trial"}"#;
    let mut passed = 0;
    eventually("a full window", async || {
        let statuses = statuses(listener, "trial", 20).await;
        passed += statuses.iter().filter(|status| **status == 200).count();
        let [over] = reported(&service, [over]).await;
        (passed >= 90 && over > Some(0.0)).then_some(())
    })
    .await;
    assert_eq!(statuses(listener, "trial", 50).await, [429; 50]);
    assert_eq!(passed, 90);
    let answer = service.call(about_trial()).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let allowed = r#"ratelimit_rlqs_requests_total{domain="shop",result="allowed"}"#;
    eventually("the last report", async || {
        let shares = shares(&service, "trial").await;
        let has_none = shares["clients"][0]["share"].is_null();
        let [allowed] = reported(&service, [allowed]).await;
        (has_none && allowed == Some(90.0)).then_some(())
    })
    .await;
}

fn about_trial() -> RateLimitRequest {
    let mut request = about("user", "trial");
    request.domain = "shop".to_owned();
    request
}

/// Without the service an Envoy has its share up to the end of its time to live, and then its own part of the limit.
#[tokio::test]
async fn fallback_of_the_page_limits_without_the_service() {
    needs!(envoy);
    let (service, listener, envoy) = started(&["--rlqs", "--rlqs-ttl", "10s"]).await;
    eventually("a share", async || {
        (statuses(listener, "eve", 1).await == [200]).then_some(())
    })
    .await;
    drop(service);
    // Nothing of the share is left.
    tokio::time::sleep(Duration::from_secs(12)).await;
    eventually("requests of the fallback, and limited ones", async || {
        let statuses = statuses(listener, "eve", 50).await;
        let passed = statuses.iter().filter(|status| **status == 200);
        let log = envoy.log();
        assert!(!envoy_has_crashed(&log), "{log}");
        (1..50).contains(&passed.count()).then_some(())
    })
    .await;
}

pub(crate) fn envoy_has_crashed(log: &str) -> bool {
    log.contains("Caught Segmentation fault") || log.contains("Caught Aborted")
}

#[tokio::test]
async fn envoys_of_two_instances_share_a_limit() {
    needs!(envoy);
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let options = ["--rlqs", "--redis", &url, "--redis-deadline", "20s"];
    let instances = [started(&options).await, started(&options).await];
    let (began_at, passed) = (Instant::now(), AtomicUsize::new(0));
    // The first has the whole limit until the second one wants its part.
    for (_, listener, _) in &instances {
        eventually("a share", async || {
            let statuses = statuses(*listener, "eve", 20).await;
            let of_these = statuses.iter().filter(|status| **status == 200);
            passed.fetch_add(of_these.count(), Relaxed);
            statuses.contains(&200).then_some(())
        })
        .await;
    }
    let passed = passed.into_inner();
    let most = 10.0 + 90.0 * began_at.elapsed().as_secs_f64();
    assert!((passed as f64) <= most, "{passed} of {most}");
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
}
