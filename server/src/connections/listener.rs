//! Listening sockets: TCP and Unix.

use std::{future::Future, io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

use crate::decide_and_serve_errors::ServeError;

/// A listening socket.
pub(crate) trait Listener: Send + Sync + Sized + 'static {
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and the address of its other end.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;

    /// The connections in the backlog. They are accepted from the socket itself, since the runtime may not have
    /// polled it.
    fn waiting(self) -> Vec<(Self::Io, SocketAddr)>;

    /// The address for the log.
    fn shown(&self) -> String;
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.accept().await?;
        at_once(&stream);
        Ok((stream, address))
    }

    fn waiting(self) -> Vec<(TcpStream, SocketAddr)> {
        let Ok(listener) = self.into_std() else {
            return Vec::new();
        };
        let accepted =
            std::iter::from_fn(|| listener.accept().ok()).filter_map(|(stream, address)| {
                stream.set_nonblocking(true).ok()?;
                let stream = TcpStream::from_std(stream).ok()?;
                at_once(&stream);
                Some((stream, address))
            });
        accepted.collect()
    }

    fn shown(&self) -> String {
        let address = self.local_addr();
        address.map_or_else(|error| error.to_string(), |address| address.to_string())
    }
}

/// Disables Nagle's algorithm.
fn at_once(stream: &TcpStream) {
    drop(stream.set_nodelay(true));
}

/// Listens on the address of an option. Returns the address with its real port.
pub(crate) async fn listen(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    listener.map_err(|error| ServeError(format!("{option}: {address}: {error}")))
}

/// [`listen`] for an option that can be `off`.
pub(crate) async fn listen_unless_off(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    let listener = listen(address, option).await;
    listener
        .map_err(|ServeError(text)| ServeError(format!("{text}; choose another address, or off")))
}

#[cfg(unix)]
mod of_files {
    use std::{
        fs, io,
        net::{Ipv4Addr, SocketAddr},
        os::unix::fs::FileTypeExt as _,
        path::Path,
    };

    use tokio::net::{UnixListener, UnixStream};

    use super::Listener;

    /// The other end is a process of this machine.
    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    impl Listener for UnixListener {
        type Io = UnixStream;

        async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
            let (stream, _) = self.accept().await?;
            Ok((stream, HERE))
        }

        fn waiting(self) -> Vec<(UnixStream, SocketAddr)> {
            let Ok(listener) = self.into_std() else {
                return Vec::new();
            };
            let accepted =
                std::iter::from_fn(|| listener.accept().ok()).filter_map(|(stream, _)| {
                    stream.set_nonblocking(true).ok()?;
                    Some((UnixStream::from_std(stream).ok()?, HERE))
                });
            accepted.collect()
        }

        fn shown(&self) -> String {
            let address = self.local_addr().ok();
            let path = address.as_ref().and_then(|address| address.as_pathname());
            path.map_or_else(String::new, |path| path.display().to_string())
        }
    }

    /// Listens on a Unix socket. Replaces a socket file that no process listens on.
    pub(crate) async fn listen_unix(path: &Path) -> io::Result<UnixListener> {
        let metadata = path.symlink_metadata();
        let is_socket = metadata.is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket && UnixStream::connect(path).await.is_err() {
            fs::remove_file(path)?;
        }
        UnixListener::bind(path)
    }
}

#[cfg(unix)]
pub(crate) use self::of_files::listen_unix;
