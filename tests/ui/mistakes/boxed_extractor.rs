//~ `Box<PeerIp>` does not make a key from a request
//~ an extractor chosen at run time is a `Box<dyn KeyExtractor>` or an `Arc`
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn main() {
    let _ = RateLimitLayer::new(Quota::per_second(10), Box::new(PeerIp));
}
