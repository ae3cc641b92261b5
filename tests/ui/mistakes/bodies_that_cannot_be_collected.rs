//~ `BufferedBodies` cannot copy `reqwest::Request`
//~ requests of reqwest copy themselves, without it
use tower::{Layer, Service};
use tower_ratelimit::Quota;
use tower_ratelimit_client::{Pacer, PacerLayer};

fn call(_: impl Service<reqwest::Request>) {}

fn main() {
    let layer = PacerLayer::new(Pacer::new(Quota::per_second(10)));
    call(layer.buffer_bodies(1_024).layer(reqwest::Client::new()));
}
