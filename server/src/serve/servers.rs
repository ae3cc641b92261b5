//! The running servers, and their shutdown.

use std::time::Duration;

use axum::{Router, extract::Request};
use tokio::{net::TcpListener, task::JoinSet};
use tonic::service::Routes;
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::{HealthReporter, health_reporter},
};

use super::{
    listeners::{GrpcListener, Listeners},
    service_components::Parts,
};
use crate::{
    connections::{self, ConnectionLimits, MAX_CONNECTIONS, RequestBody, call_routes},
    http_routes::Draining,
    reflection, reservations, rls,
    shutdown::{self, Stop, Stopped},
    telemetry::Caller,
};

/// The names of the gRPC services in the health service.
const HEALTH_NAMES: [&str; 4] = ["", "ratelimit", rls::NAME, reservations::NAME];

/// The running servers.
pub(super) struct Servers {
    running: JoinSet<()>,
    /// Sets the health after each set of the control plane.
    health_task: JoinSet<()>,
    health: HealthReporter,
    draining: Draining,
    stop: Stop,
}

impl Servers {
    /// Serves on all listeners.
    pub(super) async fn start(parts: &Parts, listeners: Listeners) -> Self {
        let (stop, stopped) = shutdown::stop();
        let (health, health_service) = health_reporter();
        set_health(&health, parts.serves_limits(), ServingStatus::Serving).await;
        let health_task = follow_limits(parts, health.clone());
        let draining = Draining::default();
        let mut running = JoinSet::new();

        let routes = parts.router(draining.clone());
        let answer = move |request: Request<RequestBody>, peer| {
            // The routes that decide have no parameters, so the path is the route.
            let caller = Caller::of(request.headers(), Some(request.uri().path()));
            caller.within(call_routes(routes.clone(), request, peer))
        };
        let tls = parts.tls.clone().filter(|_| parts.settings.http_tls);
        let (listener, _) = listeners.http;
        let limits = (ConnectionLimits::http(MAX_CONNECTIONS), None);
        let until = stopped.clone();
        running.spawn(connections::serve(listener, tls, limits, answer, until));

        let routes = services(parts, health_service);
        serve_grpc(parts, listeners.grpc, routes, &stopped, &mut running);
        if let Some(quotas) = &parts.quotas {
            // Streams of reports have no end of their own.
            let (shares, stopped) = (quotas.0.clone(), stopped.stopped.clone());
            running.spawn(async move {
                shutdown::wait(stopped).await;
                shares.end_streams();
            });
        }
        if let Some(listener) = listeners.prometheus {
            serve_metrics(parts, listener, &stopped, &mut running);
        }
        if let Some(listener) = listeners.admin {
            running.spawn(parts.admin(draining.clone()).serve(listener, stopped));
        }
        Self {
            running,
            health_task,
            health,
            draining,
            stop,
        }
    }

    /// Reports not ready, and drains for this time; then stops, and completes active requests. False on timeout.
    pub(super) async fn end(mut self, drain: Duration) -> bool {
        self.draining.begin();
        self.health_task.shutdown().await;
        set_health(&self.health, true, ServingStatus::NotServing).await;
        let all = async { while self.running.join_next().await.is_some() {} };
        shutdown::drain(drain, &self.stop, all).await
    }
}

/// A task that sets the health after each set of the control plane.
fn follow_limits(parts: &Parts, health: HealthReporter) -> JoinSet<()> {
    let mut task = JoinSet::new();
    task.spawn(parts.follow_limits(async move |serves_limits| {
        set_health(&health, serves_limits, ServingStatus::Serving).await;
    }));
    task
}

fn serve_grpc(
    parts: &Parts,
    listener: GrpcListener,
    routes: Router,
    stopped: &Stopped,
    running: &mut JoinSet<()>,
) {
    let answer = move |request, peer| call_routes(routes.clone(), request, peer);
    let (tls, until) = (parts.tls.clone(), stopped.clone());
    let limits = ConnectionLimits::grpc(parts.settings.grpc_max_age);
    let limits = (limits.with_shares(parts.quotas.is_some()), None);
    match listener {
        GrpcListener::Tcp(listener) => {
            running.spawn(connections::serve(listener, tls, limits, answer, until))
        }
        // The file system's permissions guard a Unix socket.
        #[cfg(unix)]
        GrpcListener::Unix(listener) => {
            running.spawn(connections::serve(listener, None, limits, answer, until))
        }
    };
}

/// Serves metrics on a listener of their own.
fn serve_metrics(
    parts: &Parts,
    listener: TcpListener,
    stopped: &Stopped,
    running: &mut JoinSet<()>,
) {
    let Some((_, path)) = &parts.settings.prometheus else {
        return;
    };
    let routes = parts.metrics.router_at(path);
    let answer = move |request, peer| call_routes(routes.clone(), request, peer);
    let limits = (ConnectionLimits::http(MAX_CONNECTIONS), None);
    running.spawn(connections::serve(
        listener,
        None,
        limits,
        answer,
        stopped.clone(),
    ));
}

/// The gRPC services.
fn services(parts: &Parts, health: HealthServer<impl Health>) -> Router {
    let services = Routes::new(health)
        .add_service(reflection::service())
        .add_service(reflection::alpha_service())
        .add_service(rls::service(parts.limits.clone()))
        .add_service(parts.reservations.clone());
    let services = match &parts.quotas {
        Some(quotas) => services.add_service(quotas.clone()),
        None => services,
    };
    services.prepare().into_axum_router()
}

/// Sets the health of the process and of the gRPC service, which serves only if there are limits.
async fn set_health(health: &HealthReporter, has_limits: bool, status: ServingStatus) {
    for name in HEALTH_NAMES {
        let status = if has_limits || name.is_empty() {
            status
        } else {
            ServingStatus::NotServing
        };
        health.set_service_status(name, status).await;
    }
}
