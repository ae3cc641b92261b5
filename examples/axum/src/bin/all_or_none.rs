//! Three limits that are charged together or not at all: of an address, of its tenant, and of
//! everybody. A client that is denied drains nobody: neither its tenant nor the others pay for what
//! it was not given. Two routes share the limits, and all counts are in one table.
//!
//! ```sh
//! cargo run -p example-axum --bin all_or_none
//! ```

use std::net::SocketAddr;

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_ratelimit::{Global, Header, LocalLimiter, LocalStore, PeerIp, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = LocalStore::new();
    let limiter = |quota: Quota| LocalLimiter::builder(quota).build_in(&store);
    let everybody = limiter(Quota::per_hour(100).named("everybody"))?;
    // Limits that apply to every address and tenant are `RateLimitLayer::all([quota.by(key), …])`; with
    // limiters a limit can be in several lists.
    let searches = RateLimitLayer::all([
        limiter(Quota::per_hour(3).named("address"))?.by(PeerIp),
        limiter(Quota::per_hour(5).named("tenant"))?.by(Header::new("x-tenant")),
        everybody.clone().by(Global),
    ]);
    let exports = RateLimitLayer::all([
        limiter(Quota::per_hour(2).named("exports"))?.by(PeerIp),
        everybody.by(Global),
    ]);
    let app = Router::new()
        .route("/search", get(|| async { "found" }).layer(searches))
        .route("/export", get(|| async { "exported" }).layer(exports));

    for (path, host, tenant, requests) in [
        ("/search", 1, "acme", 50),
        ("/search", 2, "acme", 50),
        ("/search", 3, "other", 2),
        ("/export", 1, "acme", 50),
    ] {
        let mut allowed = 0;
        let mut left = String::new();
        for _ in 0..requests {
            let request = Request::get(path).header("x-tenant", tenant);
            let mut request = request.body(Body::empty())?;
            let peer = SocketAddr::from(([203, 0, 113, host], 4_000));
            request
                .extensions_mut()
                .insert(axum::extract::ConnectInfo(peer));
            let response = app.clone().oneshot(request).await?;
            allowed += u32::from(response.status().is_success());
            left = response.headers()["ratelimit"].to_str()?.to_owned();
        }
        println!("{path} by address {host} of {tenant}: {allowed} of {requests} allowed; {left}");
    }
    println!("{} counts in one table", store.tracked_keys());
    Ok(())
}
