//! `/metrics`, on a listener of its own.

use testkit::child_processes::{eventually, free_port};

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
};

/// The text of `/metrics`.
pub(crate) async fn metrics(gateway: &Gateway) -> String {
    let mut wire = Wire::connect(gateway.http).await;
    let (head, text) = wire.answer("GET /metrics HTTP/1.1").await;
    assert_eq!(head.status(), 200);
    let content = head.field("content-type").unwrap();
    assert!(content.starts_with("text/plain; version=0.0.4"));
    text
}

/// The values of these series in `/metrics`.
pub(crate) async fn reported<const N: usize>(
    gateway: &Gateway,
    series: [&str; N],
) -> [Option<f64>; N] {
    let text = metrics(gateway).await;
    series.map(|series| {
        let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        let (_, value) = lines.find(|(name, _)| *name == series)?;
        value.parse().ok()
    })
}

#[tokio::test]
async fn requests_are_counted_by_the_class_of_their_answer() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let by_code = async || {
            let series = ["1xx", "2xx", "3xx", "4xx", "5xx", "cancelled"];
            let names =
                series.map(|code| format!("ratelimit_gateway_requests_total{{code=\"{code}\"}}"));
            reported(&gateway, names.each_ref().map(String::as_str)).await
        };
        // A series without an event is 0, not absent.
        assert_eq!(by_code().await, [Some(0.0); 6]);
        let mut wire = gateway.connect().await;
        for (path, status) in [
            ("/", 200),
            ("/limited", 200),
            ("/limited", 200),
            ("/limited", 429),
            ("/cut", 502),
        ] {
            let lines = format!("GET {path} HTTP/1.1");
            assert_eq!(wire.answer(&lines).await.0.status(), status);
        }
        let chat = "GET /chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket";
        assert_eq!(wire.answer(chat).await.0.status(), 101);
        assert_eq!(by_code().await, [1.0, 3.0, 0.0, 1.0, 1.0, 0.0].map(Some));
        // A client that leaves early still counts.
        let mut tired = gateway.connect().await;
        tired.request("GET /silent HTTP/1.1\nhost: test").await;
        eventually("the request", async || {
            (upstream.requests().len() == 6).then_some(())
        })
        .await;
        drop(tired);
        eventually("the end of its request", async || {
            (by_code().await[5] == Some(1.0)).then_some(())
        })
        .await;
        let times = [
            r#"ratelimit_gateway_duration_seconds_count{code="2xx"}"#,
            r#"ratelimit_gateway_duration_seconds_bucket{code="2xx",le="60"}"#,
        ];
        assert_eq!(reported(&gateway, times).await, [Some(3.0); 2]);
    })
    .await;
}

#[tokio::test]
async fn rules_and_their_store_have_metrics() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        for _ in 0..3 {
            let mut wire = gateway.connect().await;
            wire.answer("GET /limited HTTP/1.1").await;
        }
        let numbers = reported(
            &gateway,
            [
                r#"ratelimit_requests_total{policy="limited",result="allowed"}"#,
                r#"ratelimit_requests_total{policy="limited",result="limited"}"#,
                r#"ratelimit_check_duration_seconds_count{policy="limited",backend="local"}"#,
                r#"ratelimit_limit{policy="limited"}"#,
                "ratelimit_rules",
                r#"ratelimit_config_loads_total{result="success"}"#,
                "ratelimit_config_last_load_successful",
                r#"ratelimit_store_up{backend="local"}"#,
                r#"ratelimit_tracked_keys{backend="local"}"#,
                r#"ratelimit_enabled{rule="all"}"#,
            ],
        )
        .await;
        assert_eq!(
            numbers,
            [2.0, 1.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0].map(Some)
        );
        let text = metrics(&gateway).await;
        assert!(text.contains("\nratelimit_build_info{version="), "{text}");
        assert!(!text.contains("127.0.0"), "{text}");
        // Series of `serve` are absent.
        assert!(
            !text.contains("ratelimit_service_") && !text.contains("ratelimit_rls_"),
            "{text}"
        );
    })
    .await;
}

#[tokio::test]
async fn store_that_is_down_is_reported_without_requests() {
    bounded(async {
        let nobody = format!("redis://127.0.0.1:{}", free_port());
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--redis", &nobody]).await;
        let up = r#"ratelimit_store_up{backend="redis"}"#;
        assert_eq!(reported(&gateway, [up]).await, [Some(0.0)]);
        let degraded = r#"ratelimit_requests_total{policy="limited",result="allowed"}"#;
        gateway
            .connect()
            .await
            .answer("GET /limited HTTP/1.1")
            .await;
        assert_eq!(reported(&gateway, [degraded]).await, [Some(1.0)]);
        let text = metrics(&gateway).await;
        assert!(
            text.contains(r#"ratelimit_degraded_total{policy="limited",reason="#),
            "{text}"
        );
    })
    .await;
}
