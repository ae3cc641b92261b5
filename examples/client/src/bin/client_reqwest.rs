//! reqwest as a client that stays under a limit: a declared one, and one that it learns.
//!
//! ```sh
//! cargo run -p example-client --bin client_reqwest
//! ```
//!
//! The server is one of our own, in this process, and takes twenty requests a second.

use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, extract::Request, middleware, routing::get};
use reqwest::{Client, Method, StatusCode};
use tower::{Layer, ServiceExt};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};
use tower_ratelimit_client::{Pacer, PacerLayer};

const QUOTA: Quota = Quota::per_second(20);

/// A server, and the number of its 429 responses.
async fn serve() -> Result<(SocketAddr, Arc<AtomicUsize>), Box<dyn Error>> {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let count = middleware::from_fn(move |request: Request, next: middleware::Next| {
        let counted = Arc::clone(&counted);
        async move {
            let response = next.run(request).await;
            let is_refusal = response.status() == StatusCode::TOO_MANY_REQUESTS;
            counted.fetch_add(usize::from(is_refusal), Ordering::Relaxed);
            response
        }
    });
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(QUOTA, PeerIp))
        .layer(count);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((address, refused))
}

/// Sends eighty requests from sixteen tasks, and prints the results.
async fn load(limit: &str, pacer: Pacer) -> Result<(), Box<dyn Error>> {
    let (address, refused) = serve().await?;
    let client = PacerLayer::new(pacer).layer(Client::new());
    let began = Instant::now();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut taken = 0;
                for _ in 0..5 {
                    let url = format!("http://{address}/").parse().expect("a URL");
                    let request = reqwest::Request::new(Method::GET, url);
                    let response = client.clone().oneshot(request).await;
                    taken += usize::from(response.is_ok_and(|it| it.status() == StatusCode::OK));
                }
                taken
            })
        })
        .collect();
    let mut taken = 0;
    for task in tasks {
        taken += task.await?;
    }
    println!(
        "{limit}: the callers saw {taken} times 200 and {} times anything else in {:.1} s, \
         the server answered {} times 429",
        80 - taken,
        began.elapsed().as_secs_f64(),
        refused.load(Ordering::Relaxed)
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Delays on a busy machine may differ by half a second.
    let known = Pacer::builder(QUOTA).margin(Duration::from_millis(500));
    load("a known limit", known.build()?).await?;
    let learning = Pacer::learning_builder().max_wait(Duration::from_secs(60));
    load("an unknown limit", learning.build()?).await
}
