//! A network without sockets, on which time can stand still: connections are pipes, and each server
//! is one service.

use std::{
    convert::Infallible,
    io,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response, Uri};
use hyper::{body::Incoming, server::conn};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use testkit::in_memory_connection::Pipe;
use tokio::time::sleep;
use tower::{Service, service_fn};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Http {
    One,
    Two,
}

/// Connects to a server, which begins to serve.
pub(crate) fn connect<S>(service: S, http: Http) -> TokioIo<Pipe>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let (client, server) = tokio::io::duplex(64 * 1024);
    let service = TowerToHyperService::new(service);
    let io = TokioIo::new(Pipe(server));
    tokio::spawn(async move {
        // A client that goes away is no fault.
        let _ = match http {
            Http::One => {
                conn::http1::Builder::new()
                    .serve_connection(io, service)
                    .await
            }
            Http::Two => {
                let builder = conn::http2::Builder::new(TokioExecutor::new());
                builder.serve_connection(io, service).await
            }
        };
    });
    TokioIo::new(Pipe(client))
}

/// Connects to a server that hangs up after a second, without an answer.
pub(crate) fn connect_to_nobody(connections: &AtomicUsize) -> TokioIo<Pipe> {
    connections.fetch_add(1, Ordering::SeqCst);
    let (client, server) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        drop(server);
    });
    TokioIo::new(Pipe(client))
}

/// A client whose connections all lead to this server.
pub(crate) fn client<S>(service: S, http: Http) -> impl HyperClient
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    client_over(move || connect(service.clone(), http), http)
}

/// A client with connections of this kind.
pub(crate) fn client_over(
    connect: impl Fn() -> TokioIo<Pipe> + Clone + Send + Sync + 'static,
    http: Http,
) -> impl HyperClient {
    let connector = service_fn(move |_: Uri| std::future::ready(Ok::<_, io::Error>(connect())));
    Client::builder(TokioExecutor::new())
        .http2_only(http == Http::Two)
        .build(connector)
}

/// A client of hyper-util.
pub(crate) trait HyperClient:
    Service<
        Request<String>,
        Response = Response<Incoming>,
        Error = hyper_util::client::legacy::Error,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<C> HyperClient for C where
    C: Service<
            Request<String>,
            Response = Response<Incoming>,
            Error = hyper_util::client::legacy::Error,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}
