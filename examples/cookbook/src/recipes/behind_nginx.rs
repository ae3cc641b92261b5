//! Behind nginx, every client's own address counts, and the handler sees it, too.

use axum::{Router, routing::get};
use tower_ratelimit::{ClientAddress, ClientAddressLayer, ClientIp, Quota, RateLimitLayer};

fn app() -> Router {
    // Nobody but nginx reaches this application, on loopback.
    let client_ip = ClientIp::hops(1);
    let greeting = async |client: ClientAddress| format!("hello, {}", client.ip());
    Router::new()
        .route("/", get(greeting))
        .layer(RateLimitLayer::new(Quota::per_hour(600), client_ip.clone()))
        .layer(ClientAddressLayer::new(client_ip))
}

// The test, which is not on the page.

use crate::test_requests::{Ask, remaining, text};

#[tokio::test]
async fn a_client_is_identified_by_the_header_of_nginx() {
    let app = app();
    let through_nginx = |forwarded: &str| {
        let ask = Ask::get("/").from([127, 0, 0, 1]);
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
    // Nor does it where the client runs on the machine of nginx.
    for left in [599, 598] {
        let forged = format!("6.6.6.{left}, 127.0.0.1");
        assert_eq!(remaining(&through_nginx(&forged).of(&app).await), left);
    }
}
