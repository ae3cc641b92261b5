//! Connections: accepted, read within limits, and ended without losing a request.

mod connection;
mod listener;
mod paced;
mod terms;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible, future::Future, io, mem, net::SocketAddr, sync::Arc, time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::sleep,
};
use tower_service::Service as _;
use tracing::{error, info};

use self::connection::connection;
#[cfg(unix)]
pub(crate) use self::listener::listen_unix;
pub(crate) use self::{
    listener::{Listener, listen, listen_unless_off},
    terms::{MAX_CONNECTIONS, Terms},
};
use crate::{life, tls::Tls};

/// How long a listener rests that could not take a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// The answer of routes, which are told the peer's address.
pub(crate) async fn answer_of(
    mut routes: Router,
    request: Request<Incoming>,
    peer: Peer,
) -> Response {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer.address));
    let answer = routes.call(request).await;
    answer.unwrap_or_else(|never| match never {})
}

/// Answers all requests until it is stopped, and then those that are under way.
pub(crate) async fn serve<L, F, A>(
    listener: L,
    tls: Option<Tls>,
    terms: Terms,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    L: Listener,
    F: Fn(Request<Incoming>, Peer) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let start = |io: L::Io, address, permit: Option<OwnedSemaphorePermit>| {
        let (tls, alive, stopped) = (tls.clone(), alive.clone(), stopped.clone());
        let is_tls = tls.is_some();
        let answer = answer.clone();
        let answer = move |request| answer(request, Peer { address, is_tls });
        tokio::spawn(async move {
            agree(io, tls, terms, answer, stopped).await;
            drop((alive, permit));
        });
    };
    let room = Arc::new(Semaphore::new(terms.most.min(Semaphore::MAX_PERMITS)));
    tokio::select! {
        () = life::wait(stopped.clone()) => {}
        never = accept(&listener, &room, &start) => match never {},
    }
    for (io, address) in listener.waiting() {
        start(io, address, None);
    }
    drop(alive);
    ended.recv().await;
}

/// Takes connections, for ever.
async fn accept<L: Listener>(
    listener: &L,
    room: &Arc<Semaphore>,
    start: &(impl Fn(L::Io, SocketAddr, Option<OwnedSemaphorePermit>) + Sync),
) -> Infallible {
    let mut is_failing = false;
    loop {
        // One too many is not refused: it waits in the queue of the system.
        let permit = Arc::clone(room).acquire_owned().await.ok();
        match listener.accept().await {
            Ok((io, address)) => {
                if mem::take(&mut is_failing) {
                    info!("{} takes connections again", listener.shown());
                }
                start(io, address, permit);
            }
            Err(error) if is_of_client(&error) => {}
            // There are too many open files, say.
            Err(error) => {
                if !mem::replace(&mut is_failing, true) {
                    error!("{} takes no connections: {error}", listener.shown());
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whether there was no connection since its client is gone.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Serves a connection, once there is an agreement about TLS where that is spoken.
async fn agree<I, F, A>(
    io: I,
    tls: Option<Tls>,
    terms: Terms,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    match tls {
        None => connection(io, terms, answer, stopped).await,
        Some(tls) => {
            if let Ok(io) = tls.accept(io).await {
                connection(io, terms, answer, stopped).await;
            }
        }
    }
}
