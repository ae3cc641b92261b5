//~ `OddBody` is no request body that a pacer knows how to send again
//~~ `PacerLayer::new(..).without_replay()`
//~ `.replay_fn(|body| ..)` copies a body by a closure
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::Quota;
use tower_ratelimit_client::{Pacer, PacerLayer};

struct OddBody;

async fn send(_: Request<OddBody>) -> Result<Response<()>, std::io::Error> {
    Ok(Response::new(()))
}

fn call(_: impl Service<Request<OddBody>>) {}

fn main() {
    let layer = PacerLayer::new(Pacer::new(Quota::per_second(10)));
    call(layer.layer(service_fn(send)));
}
