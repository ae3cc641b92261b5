//! The listeners of the service.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

#[cfg(unix)]
use crate::connections::listen_unix;
use crate::{
    admin::AdminListener,
    connections::{Listener as _, listen},
    decide_and_serve_errors::ServeError,
    settings::Settings,
};

/// All of the service's listeners.
pub(super) struct Listeners {
    pub(super) grpc: GrpcListener,
    /// With the bound address.
    pub(super) http: (TcpListener, SocketAddr),
    /// The further one for metrics, if there is one.
    pub(super) prometheus: Option<TcpListener>,
    /// The admin service's, unless it is off.
    pub(super) admin: Option<AdminListener>,
}

impl Listeners {
    /// # Errors
    ///
    /// When an address is in use, or is none of this machine's.
    pub(super) async fn bind(settings: &Settings) -> Result<Self, ServeError> {
        Ok(Self {
            grpc: GrpcListener::listen(settings).await?,
            http: listen(settings.http, "--http").await?,
            prometheus: match &settings.prometheus {
                Some((address, _)) => Some(listen(*address, "PROMETHEUS_ADDR").await?.0),
                None => None,
            },
            admin: AdminListener::listen(settings).await?,
        })
    }
}

/// The listener of gRPC: TCP, or a Unix socket.
pub(super) enum GrpcListener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

impl GrpcListener {
    async fn listen(settings: &Settings) -> Result<Self, ServeError> {
        let Some(path) = &settings.grpc_uds else {
            let (listener, _) = listen(settings.grpc, "--grpc").await?;
            return Ok(Self::Tcp(listener));
        };
        let fault = |error: io::Error| {
            let text = format!("--grpc-uds: {}: {error}", path.display());
            ServeError(text)
        };
        #[cfg(unix)]
        return listen_unix(path).await.map(Self::Unix).map_err(fault);
        #[cfg(not(unix))]
        Err(fault(io::ErrorKind::Unsupported.into()))
    }

    /// The address for the log.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.shown(),
            #[cfg(unix)]
            Self::Unix(listener) => listener.shown(),
        }
    }
}
