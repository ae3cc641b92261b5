//! Prometheus reads how many requests each policy allowed and denied.

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, observe::MetricsObserver};

fn app() -> Result<Router, BuildError> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    let limit = RateLimitLayer::new(Quota::per_minute(2).named("api"), PeerIp);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit.observer(MetricsObserver::new()))
        // Below the layer, so not limited.
        .route("/metrics", get(async move || prometheus.render()));
    Ok(app)
}

// The test, which is not on the page.

use crate::test_requests::{Ask, text};

#[tokio::test]
async fn the_page_has_these_metrics() {
    let app = app().unwrap();
    for status in [200, 200, 429] {
        assert_eq!(Ask::get("/").of(&app).await.status(), status);
    }
    MetricsObserver::new().record_table(1, 0);
    let page = text(Ask::get("/metrics").of(&app).await).await;
    for line in [
        "ratelimit_requests_total{policy=\"api\",result=\"allowed\"} 2",
        "ratelimit_requests_total{policy=\"api\",result=\"limited\"} 1",
        "ratelimit_denials_total{policy=\"api\",result=\"limited\"} 1",
        "ratelimit_near_limit_total{policy=\"api\"} 2",
        "ratelimit_cost_total{policy=\"api\"} 2",
        "ratelimit_check_duration_seconds_count{policy=\"api\",backend=\"local\"} 3",
        "ratelimit_tracked_keys{backend=\"local\"} 1",
        "ratelimit_evictions_total{backend=\"local\"} 0",
    ] {
        assert!(
            page.lines().any(|other| other == line),
            "no {line} in\n{page}"
        );
    }
}
