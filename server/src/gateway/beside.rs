//! The listeners beside the proxy: metrics and probes, and operators.

use std::{fmt, net::SocketAddr};

use tokio::{net::TcpListener, task::JoinSet};

use super::settings::Settings;
use crate::{
    admin::{Admin, Place},
    connections::{self, MAX_CONNECTIONS, Terms, answer_of, listen_unless_off},
    error::ServeError,
    http::{Draining, probes},
    life::{self, Stop},
    metrics::Metrics,
    store::Store,
};

/// The listeners, of those that are wanted.
pub(super) struct ListenersBeside {
    /// With the address that it has got.
    pub(super) http: Option<(TcpListener, SocketAddr)>,
    admin: Option<Place>,
}

impl ListenersBeside {
    pub(super) async fn new(settings: &Settings) -> Result<Self, ServeError> {
        let admin = Place::listen(&settings.service()).await?;
        let http = match settings.http {
            Some(address) => Some(listen_unless_off(address, "--http").await?),
            None => None,
        };
        Ok(Self { http, admin })
    }
}

/// The end of the log's first line.
impl fmt::Display for ListenersBeside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, address)) = &self.http {
            write!(f, "; metrics and probes are on {address}")?;
        }
        if let Some(Place { address, .. }) = &self.admin {
            write!(f, "; operators are served on {address}")?;
        }
        Ok(())
    }
}

/// The servers.
pub(super) struct Beside {
    servers: JoinSet<()>,
    stop: Stop,
}

impl Beside {
    pub(super) fn start(
        listeners: ListenersBeside,
        metrics: Option<&Metrics>,
        admin: Admin,
        draining: &Draining,
        needed: Option<Store>,
    ) -> Self {
        let (stop, stopped) = life::stop();
        let mut servers = JoinSet::new();
        if let (Some((listener, _)), Some(metrics)) = (listeners.http, metrics) {
            let draining = draining.clone();
            let probes =
                probes(move || !draining.has_begun() && needed.as_ref().is_none_or(Store::is_up));
            let routes = metrics.router().merge(probes);
            let answer = move |request, peer| answer_of(routes.clone(), request, peer);
            let (terms, until) = ((Terms::http(MAX_CONNECTIONS), None), stopped.clone());
            servers.spawn(connections::serve(listener, None, terms, answer, until));
        }
        if let Some(place) = listeners.admin {
            servers.spawn(admin.serve(place, stopped));
        }
        Self { servers, stop }
    }

    /// Takes no more requests, and waits for those under way.
    pub(super) async fn end(mut self) {
        self.stop.now();
        while self.servers.join_next().await.is_some() {}
    }
}
