//~~ there is no built-in rejection for the response body `ResponseBody<
//~~ response.map(axum::body::Body::new)
//~ `.map_response(|response: http::Response<_>|
//~ put the limit inside it
use axum::{Router, body::Body, extract::Request};
use tower::{Service, ServiceBuilder};
use tower_http::trace::TraceLayer;
use tower_ratelimit::{Global, Quota, RateLimitLayer};

fn serve(_: impl Service<Request<Body>>) {}

fn main() {
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(Quota::per_second(10), Global))
        .layer(TraceLayer::new_for_http())
        .service(Router::<()>::new());
    serve(service);
}
