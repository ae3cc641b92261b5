//! Plans with limits of their own, free, pro and unlimited, and a customer whose limit stands in the
//! database. An outer layer finds the plan, here by API key; the limiter only reads it.
//!
//! ```sh
//! cargo run -p example-axum --bin tiers
//! ```

use axum::{Router, body::Body, extract::Request, middleware, routing::get};
use tower::ServiceExt;
use tower_ratelimit::{
    Key, LocalLimiter, Quota, RateLimitLayer,
    key::extension_fn,
    limiter::{RequestQuota, Tier},
};

/// The facts about a request that authentication found out.
#[derive(Clone)]
struct Customer {
    name: String,
    tier: Tier,
}

/// Stands for a look into the database.
async fn authenticate(mut request: Request, next: middleware::Next) -> axum::response::Response {
    let key = request
        .headers()
        .get("x-api-key")
        .and_then(|key| key.to_str().ok());
    let (name, tier) = match key {
        Some("key-of-bob") => ("bob", Tier::named("pro")),
        Some("key-of-cat") => ("cat", RequestQuota::limit(5).into()),
        Some("key-of-us") => ("us", Tier::UNLIMITED),
        _ => ("anonymous", Tier::DEFAULT),
    };
    let name = name.to_owned();
    request.extensions_mut().insert(Customer { name, tier });
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = LocalLimiter::builder(Quota::per_minute(3).named("free"))
        .tier("pro", Quota::per_minute(6).named("pro"))
        .build()?;
    let limit = RateLimitLayer::new(
        limiter,
        extension_fn(|customer: &Customer| Key::from(customer.name.as_str())),
    )
    .tier(|parts| {
        let customer = parts.extensions.get::<Customer>();
        customer.map_or(Tier::DEFAULT, |customer| customer.tier.clone())
    });
    // The last layer added runs first: authentication comes before the limit that needs it.
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit)
        .layer(middleware::from_fn(authenticate));

    for key in ["key-of-ann", "key-of-bob", "key-of-cat", "key-of-us"] {
        print!("{key:>10}:");
        for _ in 0..9 {
            let request = Request::get("/")
                .header("x-api-key", key)
                .body(Body::empty())?;
            let response = app.clone().oneshot(request).await?;
            print!(" {}", response.status().as_u16());
        }
        println!();
    }
    Ok(())
}
