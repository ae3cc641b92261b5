//~~ HandleError<Gate<
use axum::{BoxError, Router, error_handling::HandleErrorLayer, routing::get};
use http::StatusCode;
use tower::ServiceBuilder;
use tower_ratelimit::{Global, Quota, RateLimitLayer};

async fn answer(error: BoxError) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn main() {
    let _: Router = Router::new().route("/", get(async || "hello")).layer(
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(answer))
            .layer(RateLimitLayer::new(Quota::per_second(10), Global)),
    );
}
