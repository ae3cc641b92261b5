//! When the service is full, searches are shed first, and purchases still pass.

use axum::{Router, routing::get, routing::post};
use tower_ratelimit::{Global, Priority, Quota, RateLimitLayer};

const SEARCH: Priority = Priority::share(80).expect("a share from 1 to 100");

fn app() -> Router {
    let all = RateLimitLayer::new(Quota::per_minute(1_000), Global);
    let all = all.priority(|parts| match parts.uri.path() {
        "/search" => SEARCH,
        _ => Priority::CRITICAL,
    });
    let app = Router::new().route("/search", get(search));
    app.route("/purchase", post(purchase)).layer(all)
}

// The test, which is not on the page.

use axum::http::Method;

use crate::test_requests::Ask;

async fn search() -> &'static str {
    "found"
}

async fn purchase() -> &'static str {
    "bought"
}

#[tokio::test]
async fn purchases_pass_where_searches_are_shed() {
    let app = app();
    let passed = async |method: Method, path, times: usize| {
        let mut passed = 0;
        for _ in 0..times {
            let answer = Ask::get(path).method(method.clone()).of(&app).await;
            passed += usize::from(answer.status() == 200);
        }
        passed
    };
    let searches = passed(Method::GET, "/search", 1_000).await;
    assert!((800..1_000).contains(&searches), "{searches}");
    assert_eq!(passed(Method::GET, "/search", 1).await, 0);
    assert_eq!(passed(Method::POST, "/purchase", 150).await, 150);
}
