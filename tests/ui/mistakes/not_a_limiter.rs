//~ `&str` is not a limiter
//~ expected a `Quota`, a `LocalLimiter`, a `GovernorLimiter`
use tower_ratelimit::{PeerIp, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new("10/second", PeerIp);
}
