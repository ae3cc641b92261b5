//! The listeners beside the proxy: metrics and probes, and operators.

use std::{fmt, net::SocketAddr};

use axum::{Router, body::Body};
use http::Request;
use hyper::body::Incoming;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tower_service::Service as _;

use super::Settings;
use crate::{
    admin::{self, Admin},
    connections::{self, MAX_CONNECTIONS},
    http::{Draining, probes},
    metrics::Metrics,
    serve::{ServeError, listen_unless_off},
};

/// The listeners, of those that are wanted.
pub(super) struct Listeners {
    pub(super) http: Option<TcpListener>,
    /// With the token of operators.
    admin: Option<(TcpListener, Option<String>)>,
}

impl Listeners {
    pub(super) async fn new(settings: &Settings) -> Result<Self, ServeError> {
        let admin = settings.service().admin().await?;
        let http = match settings.http {
            Some(address) => Some(listen_unless_off(address, "--http").await?),
            None => None,
        };
        Ok(Self { http, admin })
    }
}

/// What the log says of them.
impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |listener: &TcpListener| listener.local_addr().ok();
        if let Some(address) = self.http.as_ref().and_then(address) {
            write!(f, "; metrics and probes are on {address}")?;
        }
        if let Some(address) = self.admin.as_ref().and_then(|(admin, _)| address(admin)) {
            write!(f, "; operators are served on {address}")?;
        }
        Ok(())
    }
}

/// The servers.
pub(super) struct Beside {
    servers: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Beside {
    pub(super) fn start(
        listeners: Listeners,
        metrics: Option<&Metrics>,
        admin: &Admin,
        draining: &Draining,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut servers = JoinSet::new();
        if let (Some(listener), Some(metrics)) = (listeners.http, metrics) {
            let draining = draining.clone();
            let probes = probes(move || !draining.has_begun());
            servers.spawn(http(
                listener,
                metrics.router().merge(probes),
                stopped.clone(),
            ));
        }
        if let Some((listener, token)) = listeners.admin {
            let address = listener.local_addr();
            let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
            servers.spawn(admin::serve(
                listener,
                admin.router(address, token),
                stopped,
            ));
        }
        Self { servers, stop }
    }

    /// Takes no more requests, and waits for those under way.
    pub(super) async fn end(mut self) {
        self.stop.send_replace(true);
        while self.servers.join_next().await.is_some() {}
    }
}

async fn http(listener: TcpListener, router: Router, stopped: watch::Receiver<bool>) {
    let answer = move |request: Request<Incoming>, _| {
        let answer = router.clone().call(request.map(Body::new));
        async { answer.await.unwrap_or_else(|never| match never {}) }
    };
    connections::serve(listener, None, MAX_CONNECTIONS, answer, stopped).await;
}
