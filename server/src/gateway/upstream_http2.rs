//! HTTP/2 connections to the upstream.
//!
//! The client of hyper-util keeps connections by the authority of a request. In HTTP/2 that is the host of the client,
//! so clients could choose the number of connections. Here it is fixed.

use std::{
    array,
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::BoxError;
use http::{Request, Response, Uri, header::HOST};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::{
    client::legacy::connect::Connection as _,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tower_service::Service as _;

use super::{
    failures::Refusal,
    upload::Upload,
    upstream_address::UpstreamHttp,
    upstream_buffers::{BUFFER, IDLE_TIME, LIFETIME, WINDOW, all_windows},
    upstream_connector::{Connector, HANDSHAKE_TIME, TlsError},
};

/// The number of HTTP/2 connections to an upstream: many servers accept no more than 100 streams on one.
const CONNECTIONS: usize = 8;

/// Connections in turn.
pub(super) struct Http2Connections {
    connector: Connector,
    uri: Uri,
    builder: http2::Builder<TokioExecutor>,
    slots: [Mutex<ConnectionSlot>; CONNECTIONS],
    next: AtomicUsize,
    /// Whether the upstream selected HTTP/1.1 by ALPN for the last connection.
    selects_http1: AtomicBool,
}

/// A place for a connection.
#[derive(Default)]
struct ConnectionSlot {
    opening: Option<Opening>,
    opened: Option<Instant>,
    used: Option<Instant>,
}

/// A connection that opens, then the result, for all requests that wait for it.
type Opening = watch::Receiver<Option<Result<Opened, Arc<BoxError>>>>;

#[derive(Clone)]
enum Opened {
    Http2(SendRequest<Upload>),
    /// The upstream selected HTTP/1.1.
    Http1,
}

/// The outcome of a request.
pub(super) enum Sent {
    Response(Response<Incoming>),
    /// The upstream speaks HTTP/1.1 only; the request was not sent.
    Unsent(Box<Request<Upload>>),
}

impl Http2Connections {
    /// Connections of this connector, for this many concurrent requests.
    pub(super) fn new(connector: Connector, uri: Uri, max_in_flight: u32) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_send_buf_size(BUFFER as usize)
            .max_header_list_size(BUFFER)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(all_windows(max_in_flight));
        Self {
            connector,
            uri,
            builder,
            slots: array::from_fn(|_| Mutex::default()),
            next: AtomicUsize::new(0),
            selects_http1: AtomicBool::new(false),
        }
    }

    /// Whether a request without an upgrade is sent by HTTP/2, or tries to.
    pub(super) fn takes(&self, is_grpc: bool) -> bool {
        match self.connector.offered() {
            UpstreamHttp::Http1 => false,
            UpstreamHttp::Http2 => true,
            UpstreamHttp::Auto if is_grpc => true,
            UpstreamHttp::Auto => {
                self.connector.is_tls() && !self.selects_http1.load(Ordering::Relaxed)
            }
        }
    }

    /// Lets the next request find out which version the upstream speaks.
    pub(super) fn forget_selection(&self) {
        self.selects_http1.store(false, Ordering::Relaxed);
    }

    /// Sends a request to this target, again if its connection closed before. The target has the host.
    pub(super) async fn request(
        &self,
        mut request: Request<Upload>,
        target: Uri,
    ) -> Result<Sent, Refusal> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[turn % CONNECTIONS];
        let Opened::Http2(mut sender) = self.connection(slot).await? else {
            return Ok(Sent::Unsent(Box::new(request)));
        };
        *request.uri_mut() = target;
        drop(request.headers_mut().remove(HOST));
        let mut is_again = false;
        loop {
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok(Sent::Response(response)),
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if !is_again => request = unsent,
                _ => return Err(Refusal::Exchange(error.into_error())),
            }
            is_again = true;
            sender = match self.connection(slot).await? {
                Opened::Http2(sender) => sender,
                Opened::Http1 => return Err(no_http2()),
            };
        }
    }

    /// Makes the kept connections this much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: std::time::Duration) {
        for slot in &self.slots {
            let opened = &mut slot.lock().unwrap().opened;
            *opened = opened.map(|opened| opened - by);
        }
    }

    /// The slot's connection, or a new one.
    async fn connection(&self, slot: &Mutex<ConnectionSlot>) -> Result<Opened, Refusal> {
        let mut opening = {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let opening = slot.usable().unwrap_or_else(|| {
                slot.opened = Some(now);
                self.open()
            });
            slot.opening = Some(opening.clone());
            slot.used = Some(now);
            opening
        };
        let opened = opening.wait_for(Option::is_some).await;
        let opened = opened.map_or(None, |opened| opened.clone());
        let opened = opened.unwrap_or_else(|| Err(Arc::new("the gateway is stopping".into())));
        let opened = opened.map_err(Refusal::Connect)?;
        let selects_http1 = matches!(opened, Opened::Http1);
        self.selects_http1.store(selects_http1, Ordering::Relaxed);
        Ok(opened)
    }

    /// Opens a connection in a task of its own: the request that caused it may be cancelled, and others wait for it.
    fn open(&self) -> Opening {
        let (sender, opening) = watch::channel(None);
        let (connector, uri) = (self.connector.clone(), self.uri.clone());
        let builder = self.builder.clone();
        tokio::spawn(async move {
            let opened = open(connector, uri, builder).await;
            sender.send_replace(Some(opened.map_err(Arc::new)));
        });
        opening
    }
}

impl ConnectionSlot {
    /// The connection, unless it closed, failed, is old, or may be about to close.
    fn usable(&self) -> Option<Opening> {
        let opening = self.opening.as_ref()?;
        let is_usable = match &*opening.borrow() {
            // Without a sender the task was lost.
            None => opening.has_changed().is_ok(),
            Some(Ok(Opened::Http2(sender))) => {
                let is_idle = self.used.is_none_or(|used| used.elapsed() >= IDLE_TIME);
                let is_old = self
                    .opened
                    .is_none_or(|opened| opened.elapsed() >= LIFETIME);
                !is_idle && !is_old && !sender.is_closed()
            }
            Some(_) => false,
        };
        is_usable.then(|| opening.clone())
    }
}

/// The error of a request that needs HTTP/2.
pub(super) fn no_http2() -> Refusal {
    Refusal::Connect(Arc::new(TlsError::NoHttp2.into()))
}

async fn open(
    mut connector: Connector,
    uri: Uri,
    builder: http2::Builder<TokioExecutor>,
) -> Result<Opened, BoxError> {
    poll_fn(|cx| connector.poll_ready(cx)).await?;
    let connecting = connector.call(uri);
    let stream = if connector.is_tls() {
        connecting.await?
    } else {
        // The other requests that wait for it would otherwise time out with it.
        timeout(HANDSHAKE_TIME, connecting).await??
    };
    if connector.is_tls() && !stream.connected().is_negotiated_h2() {
        return match connector.offered() {
            UpstreamHttp::Http2 => Err(TlsError::NoHttp2.into()),
            _ => Ok(Opened::Http1),
        };
    }
    let (sender, connection) = builder.handshake(stream).await?;
    tokio::spawn(connection);
    Ok(Opened::Http2(sender))
}
