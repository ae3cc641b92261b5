//! `/metrics`, as Prometheus reads it.

use std::fs;

use testkit::child_processes::{eventually, free_port};

use crate::{
    auth::{login, service},
    raw_http::{get, send},
    service_process::{RULES, Service, about},
};

/// The value of the series with this prefix.
fn value(text: &str, series: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let (_, value) = lines.find(|(name, _)| *name == series)?;
    value.parse().ok()
}

/// The values of these series in `/metrics`.
pub(crate) async fn reported<const N: usize>(
    service: &Service,
    series: [&str; N],
) -> [Option<f64>; N] {
    let answer = get(service.http, "/metrics").await;
    assert_eq!(answer.status, 200);
    let content = answer.header("content-type").unwrap();
    assert!(content.starts_with("text/plain; version=0.0.4"));
    series.map(|series| value(&answer.body, series))
}

#[tokio::test]
async fn calls_are_counted_by_domain_and_code() {
    let service = Service::start(&[]).await;
    for _ in 0..3 {
        service.call(about("foo", "secret-value")).await.unwrap();
    }
    let mut unknown = about("foo", "bar");
    unknown.domain = "made-up".to_owned();
    service.call(unknown).await.unwrap();
    let mut nowhere = about("foo", "bar");
    nowhere.domain.clear();
    service.call(nowhere).await.unwrap_err();
    let counts = reported(
        &service,
        [
            r#"ratelimit_rls_requests_total{domain="rl",code="OK"}"#,
            r#"ratelimit_rls_requests_total{domain="rl",code="OVER_LIMIT"}"#,
            r#"ratelimit_rls_requests_total{domain="unknown",code="OK"}"#,
            r#"ratelimit_rls_requests_total{domain="unknown",code="INVALID_ARGUMENT"}"#,
            r#"ratelimit_rls_duration_seconds_count{domain="rl",code="OK"}"#,
            r#"ratelimit_tracked_keys{backend="local"}"#,
            r#"ratelimit_service_rate_limit_total_hits{domain="rl",key1="foo"}"#,
            r#"ratelimit_service_rate_limit_over_limit{domain="rl",key1="foo"}"#,
            r#"ratelimit_service_rate_limit_within_limit{domain="rl",key1="foo"}"#,
        ],
    )
    .await;
    let expected = [2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 3.0, 1.0, 2.0];
    assert_eq!(counts, expected.map(Some));
    let text = get(service.http, "/metrics").await.body;
    for hidden in ["secret-value", "made-up"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
}

#[tokio::test]
async fn rules_of_requests_are_counted_by_policy() {
    let (service, _folder) = service(&[]).await;
    for _ in 0..3 {
        send(service.http, &login("", "203.0.113.7"), "").await;
    }
    let counts = reported(
        &service,
        [
            r#"ratelimit_requests_total{policy="login",result="allowed"}"#,
            r#"ratelimit_requests_total{policy="login",result="limited"}"#,
            r#"ratelimit_check_duration_seconds_count{policy="login",backend="local"}"#,
            r#"ratelimit_limit{policy="login"}"#,
            r#"ratelimit_limit{policy="rl.generic_key_heavy"}"#,
        ],
    )
    .await;
    assert_eq!(counts, [2.0, 1.0, 3.0, 2.0, 5.0].map(Some));
    let text = get(service.http, "/metrics").await.body;
    let limits = text.matches("\nratelimit_limit{").count();
    assert_eq!(value(&text, "ratelimit_rules"), Some(limits as f64));
    assert!(!text.contains("203.0.113.7"));
}

#[tokio::test]
async fn reloads_are_counted_and_limits_are_those_in_force() {
    let service = Service::start(&[]).await;
    let series = [
        r#"ratelimit_config_loads_total{result="success"}"#,
        r#"ratelimit_config_loads_total{result="failure"}"#,
        "ratelimit_config_last_load_successful",
        r#"ratelimit_limit{policy="rl.foo"}"#,
    ];
    assert_eq!(
        reported(&service, series).await,
        [1.0, 0.0, 1.0, 2.0].map(Some)
    );
    let started = reported(&service, ["ratelimit_config_last_load_timestamp_seconds"]).await;
    assert!(started[0].unwrap() > 1.7e9);
    let rules = service.folder.path().join("rules.yaml");
    for (text, expected) in [
        ("domain: [", [1.0, 1.0, 0.0, 2.0].map(Some)),
        (
            &*RULES.replace("key: foo", "key: bar"),
            [Some(2.0), Some(1.0), Some(1.0), None],
        ),
    ] {
        fs::write(&rules, text).unwrap();
        service.process.hang_up();
        eventually("the counts of the reload", async || {
            (reported(&service, series).await == expected).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn store_that_is_down_is_reported() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let service = Service::start(&["--redis", &nobody]).await;
    eventually("an open breaker", async || {
        service.call(about("foo", "bar")).await.unwrap();
        let health = [
            r#"ratelimit_store_up{backend="redis"}"#,
            r#"ratelimit_breaker_open{backend="redis"}"#,
        ];
        (reported(&service, health).await == [Some(0.0), Some(1.0)]).then_some(())
    })
    .await;
    // Another thread than the main one logs it.
    eventually("a line about Redis", async || {
        service.process.log().contains("redis-down").then_some(())
    })
    .await;
    let text = get(service.http, "/metrics").await.body;
    let degraded = r#"ratelimit_degraded_total{policy="rls",reason="#;
    assert!(text.contains(degraded), "{text}");
}
