//! Connections: accepted, read within limits, and ended without losing a request.

mod connection;
mod listener;
mod paced;
mod request_body;
mod room;
mod standing;
mod terms;
#[cfg(test)]
mod tests;

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
    sync::{mpsc, watch},
    time::sleep,
};
use tower_service::Service as _;
use tracing::{error, info};

#[cfg(unix)]
pub(crate) use self::listener::listen_unix;
pub(crate) use self::{
    connection::MAX_FIELDS,
    listener::{Listener, listen, listen_unless_off},
    request_body::RequestBody,
    room::PerClient,
    terms::{MAX_CONNECTIONS, Terms},
};
use self::{
    connection::connection,
    room::{Room, Slot},
};
use crate::{
    life::{self, Stopped},
    tls::Tls,
};

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
    request: Request<RequestBody>,
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
    (terms, per_client): (Terms, Option<PerClient>),
    answer: F,
    until: Stopped,
) where
    L: Listener,
    F: Fn(Request<RequestBody>, Peer) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let room = Room::new(terms.most, per_client);
    let stopped = until.stopped.clone();
    let start = |io: L::Io, address, place: Slot| {
        let (tls, alive, stopped) = (tls.clone(), alive.clone(), stopped.clone());
        let open = until.opened();
        let (is_tls, answer) = (tls.is_some(), answer.clone());
        let answer = move |request| answer(request, Peer { address, is_tls });
        let id = place.id();
        let task = tokio::spawn(async move {
            agree((io, place), tls, terms, answer, stopped).await;
            drop((alive, open));
        });
        room.set_task(id, task.abort_handle());
    };
    let newcomer = Mutex::new(None);
    tokio::select! {
        () = life::wait(stopped.clone()) => {}
        never = accept(&listener, &room, &newcomer, &start) => match never {},
    }
    let newcomer = newcomer.into_inner().ok().flatten();
    for (io, address) in newcomer.into_iter().chain(listener.waiting()) {
        if let Some(place) = room.enter(address.ip()) {
            start(io, address, place);
        }
    }
    drop(alive);
    ended.recv().await;
}

/// Takes connections, for ever. The one that waits for room is the `newcomer`.
async fn accept<L: Listener>(
    listener: &L,
    room: &Arc<Room>,
    newcomer: &Mutex<Option<(L::Io, SocketAddr)>>,
    start: &(impl Fn(L::Io, SocketAddr, Slot) + Sync),
) -> Infallible {
    let newcomer = || newcomer.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((io, address)) => {
                if mem::take(&mut is_failing) {
                    info!("{} takes connections again", listener.shown());
                }
                // A client that has too many is not answered: 503 would cost a handshake.
                let Some(mut place) = room.enter(address.ip()) else {
                    continue;
                };
                *newcomer() = Some((io, address));
                room.wait(&mut place).await;
                let taken = newcomer().take();
                if let Some((io, address)) = taken {
                    start(io, address, place);
                }
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
    (io, place): (I, Slot),
    tls: Option<Tls>,
    terms: Terms,
    answer: F,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<RequestBody>) -> A + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    match tls {
        None => connection((io, place), terms, answer, stopped).await,
        Some(tls) => {
            // In a box: the others would keep the room of a handshake for as long as they last.
            if let Ok(io) = Box::pin(tls.accept(io)).await {
                Box::pin(connection((io, place), terms, answer, stopped)).await;
            }
        }
    }
}
