//~~ type annotations needed
use tower_ratelimit::{Key, Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(Quota::per_second(10), |parts| {
        Key::from(parts.uri.path())
    });
}
