//! The service over HTTP: requests as JSON, and probes.
//!
//! | route | response |
//! |---|---|
//! | `POST /json` | a `RateLimitRequest` in the JSON of protocol buffers: 200 if it passes, 429 if it is over its limit, 400 for an invalid one, 500 without rules or a store (400 in the reference) |
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz`, `GET /healthcheck` | 200 if the configured rules are loaded, the service is not stopping, and Redis responds (if readiness requires it); else 503, or 500 as in Envoy's reference service |

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::StatusCode;

use crate::{
    decide::{DecideError, RateLimits},
    protobuf_json,
    protobuf_messages::Code,
};
use tower_ratelimit_service::shutdown::probes;

/// The most bytes of a body.
const MAX_BODY: usize = 1 << 20;

pub use tower_ratelimit_service::shutdown::Draining;

/// The routes of this module, for a server of your own. They are ready from the first rules until `draining` begins.
pub fn router(limits: RateLimits, draining: Draining) -> Router {
    let known = limits.clone();
    router_ready(limits, move || {
        !draining.has_begun() && known.rules().is_some()
    })
}

/// [`router`] with another condition for readiness.
pub(crate) fn router_ready(
    limits: RateLimits,
    is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Router {
    Router::new()
        .route("/json", post(json))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(limits)
        .merge(probes(is_ready))
}

async fn json(State(limits): State<RateLimits>, body: Bytes) -> Response {
    let answer = match protobuf_json::request(&body) {
        Ok(request) => limits.decide(&request).await,
        Err(fault) => Err(DecideError::Invalid(fault)),
    };
    match answer {
        Ok(answer) => {
            let status = match answer.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::OK,
            };
            (status, Json(protobuf_json::response(&answer))).into_response()
        }
        Err(error) => {
            let status = match error {
                DecideError::Invalid(_) => StatusCode::BAD_REQUEST,
                DecideError::Unavailable(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, error.to_string()).into_response()
        }
    }
}
