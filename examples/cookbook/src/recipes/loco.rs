//! A Loco application has its layers in a hook.

use axum::Router;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

// In `impl Hooks for App`.
async fn after_routes(router: Router, _ctx: &AppContext) -> Result<Router> {
    Ok(router.layer(RateLimitLayer::new(Quota::per_second(10).burst(20), PeerIp)))
}

// The test, which is not on the page.

use axum::routing::get;

use crate::test_requests::{Ask, field};

/// Loco's own, which is a large dependency for one line.
struct AppContext;
type Result<T> = std::result::Result<T, std::convert::Infallible>;

#[tokio::test]
async fn routes_of_the_application_are_limited() {
    let routes = Router::new().route("/", get(|| async { "hello" }));
    let app = after_routes(routes, &AppContext).await.unwrap();
    let answer = Ask::get("/").of(&app).await;
    assert_eq!(field(&answer, "ratelimit-policy"), "\"default\";q=20;w=2");
}
