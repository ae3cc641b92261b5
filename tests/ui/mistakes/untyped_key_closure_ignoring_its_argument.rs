//~~ is not general enough
use tower_ratelimit::{Key, Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(Quota::per_second(10), |_| Key::from("x"));
}
