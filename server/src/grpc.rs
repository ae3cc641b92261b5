//! The listener of the gRPC service: an address, or a socket in the file system.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use tokio::net::TcpListener;
use tonic::transport::server::{Router, TcpIncoming};

use crate::tls::{self, Tls};

/// Where calls come in.
pub(crate) enum GrpcListener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

impl GrpcListener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self::Tcp)
    }

    /// Listens on a socket in the file system, in place of one that a process left behind.
    #[cfg(unix)]
    pub(crate) async fn bind_unix(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt as _;

        use tokio::net::{UnixListener, UnixStream};

        let is_socket = path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket && UnixStream::connect(path).await.is_err() {
            std::fs::remove_file(path)?;
        }
        UnixListener::bind(path).map(Self::Unix)
    }

    #[cfg(not(unix))]
    #[allow(clippy::unused_async, reason = "as its twin")]
    pub(crate) async fn bind_unix(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The address, as a reader of the log knows it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |address| address.to_string()),
            #[cfg(unix)]
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(String::new, |path| path.display().to_string())
            }
        }
    }

    /// Serves, by TLS where there is any, until `end`, and then until the last call is answered.
    pub(crate) async fn serve(
        self,
        tls: Option<Tls>,
        services: Router,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), tonic::transport::Error> {
        match (self, tls) {
            (Self::Tcp(listener), Some(tls)) => {
                let incoming = tls::incoming(listener, tls);
                services.serve_with_incoming_shutdown(incoming, end).await
            }
            (Self::Tcp(listener), None) => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                services.serve_with_incoming_shutdown(incoming, end).await
            }
            // A socket of the file system is guarded by that.
            #[cfg(unix)]
            (Self::Unix(listener), _) => {
                let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
                services.serve_with_incoming_shutdown(incoming, end).await
            }
        }
    }
}

/// The time, a tenth more or less: so that the connections of all instances do not end together.
pub(crate) fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    let tenths = (random % 2_001) as f64 / 10_000.0;
    time.mul_f64(0.9 + tenths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_most() {
        let day = Duration::from_secs(86_400);
        let ages: Vec<Duration> = (0..1_000).map(|_| jittered(day)).collect();
        let around = day.mul_f64(0.899)..day.mul_f64(1.101);
        assert!(ages.iter().all(|age| around.contains(age)));
        assert!(ages.iter().any(|age| *age != ages[0]), "they differ");
    }
}
