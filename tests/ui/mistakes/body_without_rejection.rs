//~ there is no built-in rejection for the response body `OddBody`
//~ `.rejection_fn(|rejection| ...)`
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{Global, Quota, RateLimitLayer};

struct OddBody;

async fn handle(_: Request<()>) -> Result<Response<OddBody>, std::io::Error> {
    Ok(Response::new(OddBody))
}

fn serve(_: impl Service<Request<()>>) {}

fn main() {
    let layer = RateLimitLayer::new(Quota::per_second(10), Global);
    serve(layer.layer(service_fn(handle)));
}
