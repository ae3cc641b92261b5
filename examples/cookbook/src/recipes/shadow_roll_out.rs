//! A new limit only watches at first, and names the clients that it would deny.

use tower_ratelimit::{Key, PeerIp, Quota, RateLimitLayer, observe::Event};

fn limit(denied: impl Fn(&Key) + Send + Sync + 'static) -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_minute(2), PeerIp)
        .shadow(true)
        .observer(move |event: &Event<'_>| {
            if let Event::Decided(decided) = event
                && decided.decision().is_denied()
            {
                denied(decided.key());
            }
        })
}

// The test, which is not on the page.

use std::sync::mpsc;

use axum::{Router, routing::get};

use crate::ask::Ask;

#[tokio::test]
async fn all_pass_unchanged_and_the_denials_are_reported() {
    let (sender, denied) = mpsc::channel();
    let limit = limit(move |key| sender.send(key.reveal().to_string()).unwrap());
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit);
    for _ in 0..4 {
        let answer = Ask::get("/").of(&app).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("ratelimit"));
    }
    let denied: Vec<_> = denied.try_iter().collect();
    assert_eq!(denied, ["192.0.2.1", "192.0.2.1"]);
}
