//! The sockets that the service listens on.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

#[cfg(unix)]
use crate::connections::listen_unix;
use crate::{
    admin::Place,
    connections::{Listener as _, listen},
    error::ServeError,
    settings::Settings,
};

/// All of the service's listeners.
pub(super) struct Listeners {
    pub(super) grpc: GrpcListener,
    /// With the address that it has got.
    pub(super) http: (TcpListener, SocketAddr),
    /// That of operators, if there is one.
    pub(super) admin: Option<Place>,
}

impl Listeners {
    /// # Errors
    ///
    /// When an address is taken, or none of this machine's.
    pub(super) async fn bind(settings: &Settings) -> Result<Self, ServeError> {
        Ok(Self {
            grpc: GrpcListener::listen(settings).await?,
            http: listen(settings.http, "--http").await?,
            admin: Place::listen(settings).await?,
        })
    }
}

/// The listener of gRPC: an address, or a socket in the file system.
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

    /// The address, as a reader of the log knows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.shown(),
            #[cfg(unix)]
            Self::Unix(listener) => listener.shown(),
        }
    }
}
