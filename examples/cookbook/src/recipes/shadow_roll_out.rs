//! A new limit only watches at first, and logs the clients that it would deny.

use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, observe::Event};

fn limit(log: impl Fn(String) + Send + Sync + 'static) -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_hour(600), PeerIp)
        .shadow(true)
        .observer(move |event: &Event<'_>| {
            if let Event::Decided(decided) = event
                && decided.decision().is_denied()
            {
                log(format!("would deny {}", decided.key().reveal()));
            }
        })
}

// The test, which is not on the page.

use std::sync::mpsc;

use axum::{Router, routing::get};

use crate::test_requests::Ask;

#[tokio::test]
async fn all_pass_unchanged_and_the_denials_are_reported() {
    let (sender, lines) = mpsc::channel();
    let limit = limit(move |line| sender.send(line).unwrap());
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit);
    for _ in 0..700 {
        let answer = Ask::get("/").of(&app).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("ratelimit"));
    }
    let lines: Vec<_> = lines.try_iter().collect();
    assert!(!lines.is_empty());
    assert!(lines.iter().all(|line| line == "would deny 192.0.2.1"));
}
