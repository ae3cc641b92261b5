use tower_ratelimit::{Quota, RateLimitLayer, key::key_fn};

fn main() {
    let _ = RateLimitLayer::new(
        Quota::per_second(10),
        key_fn(|parts| parts.uri.path().to_owned()),
    );
}
