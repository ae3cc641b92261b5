//! The servers of the service, and their end.

use std::time::Duration;

use axum::{Router, extract::Request};
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::{HealthReporter, health_reporter},
};

use super::{
    listeners::{GrpcListener, Listeners},
    parts::Parts,
};
use crate::{
    connections::{self, MAX_CONNECTIONS, RequestBody, Terms, answer_of},
    http::Draining,
    life::{self, Stop},
    reflection, rls,
    telemetry::Caller,
};

/// The names under which the health of the gRPC service can be asked.
const HEALTH_NAMES: [&str; 3] = ["", "ratelimit", rls::NAME];

/// The servers, which are running.
pub(super) struct Servers {
    running: JoinSet<()>,
    health: HealthReporter,
    draining: Draining,
    stop: Stop,
}

impl Servers {
    /// Serves on all listeners.
    pub(super) async fn start(parts: &Parts, listeners: Listeners) -> Self {
        let (stop, stopped) = life::stop();
        let (health, health_service) = health_reporter();
        let has_limits = parts.limits.rules().is_some();
        set_health(&health, has_limits, ServingStatus::Serving).await;
        let draining = Draining::default();
        let mut running = JoinSet::new();

        let routes = parts.router(draining.clone());
        let answer = move |request: Request<RequestBody>, peer| {
            // The routes that decide have no parameters: their paths are themselves.
            let caller = Caller::of(request.headers(), Some(request.uri().path()));
            caller.within(answer_of(routes.clone(), request, peer))
        };
        let tls = parts.tls.clone().filter(|_| parts.settings.http_tls);
        let (listener, _) = listeners.http;
        let (terms, until) = ((Terms::http(MAX_CONNECTIONS), None), stopped.clone());
        running.spawn(connections::serve(listener, tls, terms, answer, until));

        let routes = services(parts, health_service);
        let answer = move |request, peer| answer_of(routes.clone(), request, peer);
        let (tls, until) = (parts.tls.clone(), stopped.clone());
        let terms = (Terms::grpc(parts.settings.grpc_max_age), None);
        match listeners.grpc {
            GrpcListener::Tcp(listener) => {
                running.spawn(connections::serve(listener, tls, terms, answer, until))
            }
            // A socket of the file system is guarded by that.
            #[cfg(unix)]
            GrpcListener::Unix(listener) => {
                running.spawn(connections::serve(listener, None, terms, answer, until))
            }
        };

        if let Some(place) = listeners.admin {
            running.spawn(parts.admin().serve(place, stopped));
        }
        Self {
            running,
            health,
            draining,
            stop,
        }
    }

    /// Says that the service is not ready, and goes on for as long as callers may need to notice; then takes no
    /// more requests, and waits for those under way. False if these took too long.
    pub(super) async fn end(mut self, drain: Duration) -> bool {
        self.draining.begin();
        set_health(&self.health, true, ServingStatus::NotServing).await;
        let all = async { while self.running.join_next().await.is_some() {} };
        life::drain(drain, &self.stop, all).await
    }
}

/// The services by gRPC.
fn services(parts: &Parts, health: HealthServer<impl Health>) -> Router {
    let services = Routes::new(health)
        .add_service(reflection::service())
        .add_service(reflection::alpha_service())
        .add_service(rls::service(parts.limits.clone()));
    services.prepare().into_axum_router()
}

/// Tells the health of the process, and of the service of limits, which never serves where there are none.
async fn set_health(health: &HealthReporter, has_limits: bool, status: ServingStatus) {
    for name in HEALTH_NAMES {
        let status = match has_limits || name.is_empty() {
            true => status,
            false => ServingStatus::NotServing,
        };
        health.set_service_status(name, status).await;
    }
}
