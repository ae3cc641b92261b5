//! Customers have a quota for each month, which begins on the first or, for those who are billed then, on the 15th
//! (feature `calendar`).

use tower_ratelimit::{ConfigError, Key, LocalLimiter, Quota, RateLimitLayer};
use tower_ratelimit::{key::extension_fn, limiter::Tier};

fn limit() -> Result<RateLimitLayer, ConfigError> {
    let month = Quota::per_month(10_000).in_zone("Europe/Berlin");
    let limiter = LocalLimiter::builder(month)
        .tier("15", month.starting_on(15))
        .build()?;
    let customer = extension_fn(|customer: &Customer| Key::from(customer.id));
    let limit = RateLimitLayer::new(limiter, customer);
    Ok(limit.tier(|parts| match parts.extensions.get() {
        Some(Customer { billed_on: 15, .. }) => Tier::named("15"),
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
    billed_on: u8,
}

#[tokio::test]
async fn months_from_the_first_and_from_the_15th_have_counts_of_their_own() {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit().unwrap());
    let mut ends = Vec::new();
    for billed_on in [1, 15] {
        let app = app.clone().layer(Extension(Customer { id: 1, billed_on }));
        let response = Ask::get("/").of(&app).await;
        assert_eq!(field(&response, "ratelimit-policy"), "\"default\";q=10000");
        assert_eq!(remaining(&response), 9_999);
        ends.push(field(&response, "ratelimit"));
    }
    assert_ne!(ends[0], ends[1]);
    assert_eq!(Ask::get("/").of(&app).await.status(), 500);
}
