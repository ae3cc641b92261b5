//! The sockets that the service listens on.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::{
    admin::Place, connections::listen, error::ServeError, grpc::GrpcListener, settings::Settings,
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
            grpc: grpc(settings).await?,
            http: listen(settings.http, "--http").await?,
            admin: Place::listen(settings).await?,
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
