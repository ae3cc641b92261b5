use tower_ratelimit::{Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(Quota::per_second(10), "x-api-key");
}
