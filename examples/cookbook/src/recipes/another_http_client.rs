//! Requests by reqwest 0.12, ureq or any other client stay under a limit.

use reqwest::{Client, Response};
use tower::BoxError;
use tower_ratelimit_client::{Advice, Pacer};

async fn get(pacer: &Pacer, client: &Client, url: &str) -> Result<Response, BoxError> {
    loop {
        let mut turn = pacer.turn(&url.parse()?, 1).await?;
        let response = client.get(url).send().await?;
        match turn.learn(response.status(), response.headers()) {
            Advice::RetryAfter(_) => {}
            _ => return Ok(response),
        }
    }
}

// The test, which is not on the page.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Router, http::StatusCode, routing};

#[tokio::test]
async fn a_request_that_was_refused_comes_again() {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let answer = || async {
        match REQUESTS.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], ""),
            _ => (StatusCode::OK, [("retry-after", "0")], "hello"),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = Router::new().route("/", routing::get(answer));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let pacer = Pacer::learning();
    let response = get(&pacer, &Client::new(), &url).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "hello");
    assert_eq!(REQUESTS.load(Ordering::SeqCst), 2);
}
