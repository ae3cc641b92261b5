//! Connections: accepts them, reads them within limits, and closes them without losing a request.

mod connection;
mod request_body_draining;
mod slots;
#[cfg(test)]
mod tests;
mod timeouts;

use std::{
    convert::Infallible,
    future::Future,
    io, mem,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::sleep,
};
use tower::Service as _;
use tracing::{error, info};

#[cfg(unix)]
pub use self::of_files::listen_unix;
use self::{connection::connection, slots::Slot};
pub use self::{
    connection::{ConnectionLimits, MAX_CONNECTIONS, MAX_FIELDS},
    request_body_draining::RequestBody,
    slots::{ConnectionCounts, ConnectionSlots, KeyCounts, PerClient},
};
use crate::{
    errors::ServeError,
    shutdown::{self, Stopped},
    tls::Tls,
};

/// How long a listener pauses after a failure to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub address: SocketAddr,
    pub is_tls: bool,
}

/// The response of routes, with the peer's address as [`ConnectInfo`].
pub async fn call_routes(
    mut routes: Router,
    request: Request<RequestBody>,
    peer: Peer,
) -> Response {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer.address));
    let answer = routes.call(request).await;
    answer.unwrap_or_else(|never| match never {})
}

/// [`serve`] for routes.
pub async fn serve_routes(
    listener: impl Listener,
    tls: Option<Tls>,
    limits: ConnectionLimits,
    routes: Router,
    until: Stopped,
) {
    let answer = move |request, peer| call_routes(routes.clone(), request, peer);
    serve(listener, tls, (limits, None), answer, until).await;
}

/// Serves requests until the server stops, then completes the active ones. Without `slots`, the listener has its own.
pub async fn serve<L, F, A>(
    listener: L,
    tls: Option<Tls>,
    (limits, slots): (ConnectionLimits, Option<Arc<ConnectionSlots>>),
    answer: F,
    until: Stopped,
) where
    L: Listener,
    F: Fn(Request<RequestBody>, Peer) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let slots = slots.unwrap_or_else(|| ConnectionSlots::new(limits.most, None));
    let stopped = until.stopped.clone();
    let start = |io: L::Io, address, slot: Slot| {
        let (tls, alive, stopped) = (tls.clone(), alive.clone(), stopped.clone());
        let open = until.opened();
        let (is_tls, answer) = (tls.is_some(), answer.clone());
        let answer = move |request| answer(request, Peer { address, is_tls });
        let id = slot.id;
        let task = tokio::spawn(async move {
            serve_connection((io, slot), tls, limits, answer, stopped).await;
            drop((alive, open));
        });
        slots.set_task(id, task.abort_handle());
    };
    let newcomer = Mutex::new(None);
    tokio::select! {
        () = shutdown::wait(stopped.clone()) => {}
        never = accept(&listener, &slots, &newcomer, &start) => match never {},
    }
    let newcomer = newcomer.into_inner().ok().flatten();
    for (io, address) in newcomer.into_iter().chain(listener.waiting()) {
        if let Some(slot) = slots.enter(address.ip()) {
            start(io, address, slot);
        }
    }
    drop(alive);
    ended.recv().await;
}

/// Accepts connections without end. `newcomer` is the accepted connection that waits for a slot.
async fn accept<L: Listener>(
    listener: &L,
    slots: &Arc<ConnectionSlots>,
    newcomer: &Mutex<Option<(L::Io, SocketAddr)>>,
    start: &(impl Fn(L::Io, SocketAddr, Slot) + Sync),
) -> Infallible {
    let newcomer = || newcomer.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((io, address)) => {
                if mem::take(&mut is_failing) {
                    info!("{} accepts connections again", listener.shown());
                }
                // The connection closes without a response: a 503 would cost a TLS handshake.
                let Some(mut slot) = slots.enter(address.ip()) else {
                    continue;
                };
                *newcomer() = Some((io, address));
                slots.wait(&mut slot).await;
                let taken = newcomer().take();
                if let Some((io, address)) = taken {
                    start(io, address, slot);
                }
            }
            Err(error) if is_of_client(&error) => {}
            // The process has too many open files, for example.
            Err(error) => {
                if !mem::replace(&mut is_failing, true) {
                    error!("{} accepts no connections: {error}", listener.shown());
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whether the client closed the connection before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Serves a connection, after its TLS handshake if the listener has TLS.
async fn serve_connection<I, F, A>(
    (io, slot): (I, Slot),
    tls: Option<Tls>,
    limits: ConnectionLimits,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<RequestBody>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    match tls {
        None => connection((io, slot), limits, answer, stopped).await,
        Some(tls) => {
            // Boxed, since the task would otherwise keep the memory of a handshake as long as the connection lives.
            if let Ok(io) = Box::pin(tls.accept(io)).await {
                Box::pin(connection((io, slot), limits, answer, stopped)).await;
            }
        }
    }
}

/// A listening socket.
pub trait Listener: Send + Sync + Sized + 'static {
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
        let listener = self.into_std().ok();
        let accept = || listener.as_ref()?.accept().ok();
        let registered = |(stream, address): (std::net::TcpStream, _)| {
            stream.set_nonblocking(true).ok()?;
            let stream = TcpStream::from_std(stream).ok()?;
            at_once(&stream);
            Some((stream, address))
        };
        std::iter::from_fn(accept).filter_map(registered).collect()
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
pub async fn listen(
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
pub async fn listen_unless_off(
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
            let listener = self.into_std().ok();
            let accept = || listener.as_ref()?.accept().ok();
            let registered = |(stream, _): (std::os::unix::net::UnixStream, _)| {
                stream.set_nonblocking(true).ok()?;
                Some((UnixStream::from_std(stream).ok()?, HERE))
            };
            std::iter::from_fn(accept).filter_map(registered).collect()
        }

        fn shown(&self) -> String {
            let address = self.local_addr().ok();
            let path = address.as_ref().and_then(|address| address.as_pathname());
            path.map_or_else(String::new, |path| path.display().to_string())
        }
    }

    /// Listens on a Unix socket. Replaces a socket file that no process listens on.
    pub async fn listen_unix(path: &Path) -> io::Result<UnixListener> {
        let metadata = path.symlink_metadata();
        let is_socket = metadata.is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket && UnixStream::connect(path).await.is_err() {
            fs::remove_file(path)?;
        }
        UnixListener::bind(path)
    }
}
