//~ `&str` does not make a key from a request
//~ expected a key extractor: `PeerIp`, `Header::new("x-api-key")`
use tower_ratelimit::{Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(Quota::per_second(10), "x-api-key");
}
