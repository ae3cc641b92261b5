//! A test meets the limit and its end, and waits for nothing.

use axum::{body::Body, extract::Request};
use tower::ServiceExt;
use tower_ratelimit::{LocalLimiter, Quota, clock::ManualClock};

#[tokio::test]
async fn two_reports_a_minute() {
    let clock = ManualClock::new();
    let reports = LocalLimiter::builder(Quota::per_minute(2)).clock(clock.clone());
    let app = app(reports.build().unwrap());
    for (seconds, status) in [(0, 200), (0, 200), (0, 429), (30, 200), (0, 429)] {
        clock.advance(std::time::Duration::from_secs(seconds));
        let answer = app.clone().oneshot(Request::new(Body::empty())).await;
        assert_eq!(answer.unwrap().status(), status);
    }
}

// The test, which is not on the page.

use axum::{Router, extract::State, routing::get};
use tower_ratelimit::{Key, reject::Denial};

async fn report(State(reports): State<LocalLimiter>) -> Result<&'static str, Denial> {
    reports.acquire(&Key::global(), 1).into_result()?;
    Ok("all is well")
}

fn app(reports: LocalLimiter) -> Router {
    Router::new().route("/", get(report)).with_state(reports)
}
