//! Free customers may send 60 requests a minute, those who pay 600.

use tower_ratelimit::{ConfigError, Key, LocalLimiter, Quota, RateLimitLayer};
use tower_ratelimit::{key::extension_fn, limiter::Tier};

fn limit() -> Result<RateLimitLayer, ConfigError> {
    let limiter = LocalLimiter::builder(Quota::per_minute(60).named("free"))
        .tier("pro", Quota::per_minute(600).named("pro"))
        .build()?;
    let customer = extension_fn(|customer: &Customer| Key::from(customer.id));
    let limit = RateLimitLayer::new(limiter, customer);
    Ok(limit.tier(|parts| match parts.extensions.get() {
        Some(Customer { pays: true, .. }) => Tier::named("pro"),
        _ => Tier::DEFAULT,
    }))
}

// The test, which is not on the page.

use axum::{Extension, Router, routing::get};

use crate::test_requests::{Ask, field, remaining};

/// Inserted by authentication.
#[derive(Clone)]
struct Customer {
    id: u64,
    pays: bool,
}

#[tokio::test]
async fn a_customer_who_pays_has_more() {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit().unwrap());
    let request = async |id, pays| {
        let app = app.clone().layer(Extension(Customer { id, pays }));
        Ask::get("/").of(&app).await
    };
    let free = request(1, false).await;
    assert_eq!(field(&free, "ratelimit-policy"), "\"free\";q=60;w=60");
    assert_eq!(remaining(&free), 59);
    let pro = request(2, true).await;
    assert_eq!(field(&pro, "ratelimit-policy"), "\"pro\";q=600;w=60");
    assert_eq!(remaining(&pro), 599);
    assert_eq!(Ask::get("/").of(&app).await.status(), 500);
}
