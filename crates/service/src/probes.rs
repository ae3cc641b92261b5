//! Probes: whether the process runs, and whether it is ready.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, routing::get};
use http::StatusCode;

/// Whether the service is stopping, which its readiness probe reports. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Makes the service not ready.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The probes of a service with this condition for readiness.
pub fn probes(is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static) -> Router {
    let route = |otherwise: StatusCode| {
        let is_ready = is_ready.clone();
        get(move || {
            ready(if is_ready() {
                (StatusCode::OK, "OK")
            } else {
                (otherwise, "not ready")
            })
        })
    };
    Router::new()
        .route("/healthz", get(async || "OK"))
        .route("/readyz", route(StatusCode::SERVICE_UNAVAILABLE))
        .route("/healthcheck", route(StatusCode::INTERNAL_SERVER_ERROR))
}
