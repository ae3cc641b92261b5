//! The side listeners of the gateway: metrics and probes, and the admin service.

use std::{fmt, net::SocketAddr};

use tokio::{net::TcpListener, task::JoinSet};

use super::settings::Settings;
use crate::{
    admin::{Admin, AdminListener},
    connections::{self, ConnectionLimits, MAX_CONNECTIONS, call_routes, listen_unless_off},
    decide_and_serve_errors::ServeError,
    http_routes::{Draining, probes},
    metrics::Metrics,
    shutdown::{self, Stop},
    store::Store,
};

/// The bound side listeners.
pub(super) struct SideListeners {
    /// With the bound address.
    pub(super) http: Option<(TcpListener, SocketAddr)>,
    admin: Option<AdminListener>,
}

impl SideListeners {
    pub(super) async fn new(settings: &Settings) -> Result<Self, ServeError> {
        let admin = AdminListener::listen(&settings.service()).await?;
        let http = match settings.http {
            Some(address) => Some(listen_unless_off(address, "--http").await?),
            None => None,
        };
        Ok(Self { http, admin })
    }
}

/// The end of the log's first line.
impl fmt::Display for SideListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, address)) = &self.http {
            write!(f, "; metrics and probes are on {address}")?;
        }
        if let Some(AdminListener { address, .. }) = &self.admin {
            write!(f, "; operators are served on {address}")?;
        }
        Ok(())
    }
}

/// The running side servers.
pub(super) struct SideServers {
    servers: JoinSet<()>,
    stop: Stop,
}

impl SideServers {
    pub(super) fn start(
        listeners: SideListeners,
        metrics: Option<&Metrics>,
        admin: Admin,
        draining: &Draining,
        needed: Option<Store>,
    ) -> Self {
        let (stop, stopped) = shutdown::stop();
        let mut servers = JoinSet::new();
        if let (Some((listener, _)), Some(metrics)) = (listeners.http, metrics) {
            let draining = draining.clone();
            let probes =
                probes(move || !draining.has_begun() && needed.as_ref().is_none_or(Store::is_up));
            let routes = metrics.router().merge(probes);
            let answer = move |request, peer| call_routes(routes.clone(), request, peer);
            let (limits, until) = (
                (ConnectionLimits::http(MAX_CONNECTIONS), None),
                stopped.clone(),
            );
            servers.spawn(connections::serve(listener, None, limits, answer, until));
        }
        if let Some(listener) = listeners.admin {
            servers.spawn(admin.serve(listener, stopped));
        }
        Self { servers, stop }
    }

    /// Accepts no more requests, and completes the active ones.
    pub(super) async fn end(mut self) {
        self.stop.now();
        while self.servers.join_next().await.is_some() {}
    }
}
