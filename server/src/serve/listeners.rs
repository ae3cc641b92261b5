//! The sockets that the service listens on.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::{connections::listen, error::ServeError, grpc::GrpcListener, settings::Settings};

/// A listener, and the address that it has got.
pub(super) type Bound = (TcpListener, SocketAddr);

/// All of the service's listeners.
pub(super) struct Listeners {
    pub(super) grpc: GrpcListener,
    pub(super) http: Bound,
    /// That of operators, if there is one.
    pub(super) admin: Option<Bound>,
}

impl Listeners {
    /// # Errors
    ///
    /// When an address is taken, or none of this machine's.
    pub(super) async fn bind(settings: &Settings) -> Result<Self, ServeError> {
        Ok(Self {
            grpc: grpc(settings).await?,
            http: listen(settings.http, "--http").await?,
            admin: match settings.admin {
                Some(address) => Some(listen(address, "--admin").await?),
                None => None,
            },
        })
    }
}

async fn grpc(settings: &Settings) -> Result<GrpcListener, ServeError> {
    let Some(path) = &settings.grpc_uds else {
        let address = settings.grpc;
        let listener = GrpcListener::bind(address).await;
        return listener.map_err(|error| ServeError(format!("--grpc: {address}: {error}")));
    };
    let listener = GrpcListener::bind_unix(path).await;
    listener.map_err(|error| ServeError(format!("--grpc-uds: {}: {error}", path.display())))
}
