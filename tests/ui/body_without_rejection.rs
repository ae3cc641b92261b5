use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{Global, Quota, RateLimitLayer};

struct OddBody;

async fn handle(_: Request<()>) -> Result<Response<OddBody>, std::io::Error> {
    Ok(Response::new(OddBody))
}

fn main() {
    let layer = RateLimitLayer::new(Quota::per_second(10), Global);
    let _ = layer.layer(service_fn(handle)).oneshot(Request::new(()));
}
