//! Behind nginx, every client's own address counts, and the handler sees it, too.

use axum::{Router, routing::get};
use tower_ratelimit::{ClientAddress, ClientAddressLayer, ClientIp, Quota, RateLimitLayer};

fn app() -> Router {
    // The addresses that nginx connects from.
    let client_ip = ClientIp::behind(["127.0.0.1", "10.0.0.0/8"]);
    let greeting = async |client: ClientAddress| format!("hello, {}", client.ip());
    Router::new()
        .route("/", get(greeting))
        .layer(RateLimitLayer::new(Quota::per_hour(600), client_ip.clone()))
        .layer(ClientAddressLayer::new(client_ip))
}

// The test, which is not on the page.

use crate::ask::{Ask, remaining, text};

#[tokio::test]
async fn a_client_is_identified_by_the_header_of_nginx() {
    let app = app();
    let through_nginx = |forwarded: &str| {
        let ask = Ask::get("/").from([10, 0, 0, 7]);
        ask.field("x-forwarded-for", forwarded)
    };
    let first = through_nginx("203.0.113.7").of(&app).await;
    assert_eq!(remaining(&first), 599);
    assert_eq!(text(first).await, "hello, 203.0.113.7");
    // A line that the client itself has written makes it no other client.
    let forged = through_nginx("6.6.6.6, 203.0.113.7").of(&app).await;
    assert_eq!(remaining(&forged), 598);
    let other = through_nginx("203.0.113.8").of(&app).await;
    assert_eq!(remaining(&other), 599);
    let past_nginx = Ask::get("/").from([203, 0, 113, 7]);
    let past_nginx = past_nginx.field("x-forwarded-for", "203.0.113.9");
    assert_eq!(remaining(&past_nginx.of(&app).await), 597);
}
