//~ `PeerIp` is not a limiter
//~ `RateLimitLayer::new` takes the quota first and the key extractor second
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(PeerIp, Quota::per_second(10));
}
