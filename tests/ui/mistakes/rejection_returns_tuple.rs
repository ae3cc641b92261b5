//~~ a rejection cannot be `(StatusCode, &str)`
//~ becomes one by `.into_response()`
use http::StatusCode;
use tower_ratelimit::{Global, Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(Quota::per_second(10), Global)
        .rejection_fn(|_| (StatusCode::TOO_MANY_REQUESTS, "slow down"));
}
