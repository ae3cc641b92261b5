//! The service over HTTP: questions as JSON, and probes.
//!
//! | route | answers |
//! |---|---|
//! | `POST /json` | a `RateLimitRequest` in the JSON of protocol buffers: 200 if it passes, 429 if it is over its limit, 400 for one that makes no sense, 500 without rules or a store, where the reference has 400 |
//! | `GET /healthz` | 200 while the process answers |
//! | `GET /readyz`, `GET /healthcheck` | 200 while the rules are there that are configured, the service is not about to stop, and Redis answers where that is asked for; else 503, and 500 as Envoy's reference service says it |

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    routing::{get, post},
};
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use crate::{
    decide::{DecideError, RateLimits},
    json,
    messages::Code,
};

/// The longest question.
const MAX_BODY: usize = 1 << 20;

/// Whether the service is about to stop, which its readiness probe tells. A clone is a handle to the same.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// From now on the service is not ready.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The routes of this module, for a server of your own. They are ready once there are rules, until `draining` begins.
pub fn router(limits: RateLimits, draining: Draining) -> Router {
    let known = limits.clone();
    router_ready(limits, move || {
        !draining.has_begun() && known.rules().is_some()
    })
}

/// The same for a service that is ready as long as this says so.
pub(crate) fn router_ready(
    limits: RateLimits,
    is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Router {
    Router::new()
        .route("/json", post(ask))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(limits)
        .merge(probes(is_ready))
}

/// The probes of a service that is ready as long as this says so.
pub(crate) fn probes(is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static) -> Router {
    let route = |otherwise: StatusCode| {
        let is_ready = is_ready.clone();
        get(move || {
            ready(match is_ready() {
                true => (StatusCode::OK, "OK"),
                false => (otherwise, "not ready"),
            })
        })
    };
    Router::new()
        .route("/healthz", get(async || "OK"))
        .route("/readyz", route(StatusCode::SERVICE_UNAVAILABLE))
        .route("/healthcheck", route(StatusCode::INTERNAL_SERVER_ERROR))
}

async fn ask(State(limits): State<RateLimits>, body: Bytes) -> Response<String> {
    let answer = match json::request(&body) {
        Ok(request) => limits.decide(&request).await,
        Err(fault) => Err(DecideError::Invalid(fault)),
    };
    let (status, body, kind) = match answer {
        Ok(answer) => {
            let status = match answer.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::OK,
            };
            (
                status,
                json::response(&answer).to_string(),
                "application/json",
            )
        }
        Err(error) => {
            let status = match error {
                DecideError::Invalid(_) => StatusCode::BAD_REQUEST,
                DecideError::Unavailable(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, error.to_string(), "text/plain; charset=utf-8")
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
