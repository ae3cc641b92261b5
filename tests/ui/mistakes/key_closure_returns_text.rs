//~ a key closure cannot return `String`
//~ expected `Key`, `Option<Key>` or `Result<Key, KeyError>`
use tower_ratelimit::{Quota, RateLimitLayer, key::key_fn};

fn main() {
    let _ = RateLimitLayer::new(
        Quota::per_second(10),
        key_fn(|parts| parts.uri.path().to_owned()),
    );
}
