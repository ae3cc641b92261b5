//! HTTP/1.1 connections to the upstream: kept ones, and new ones for requests that a kept one failed.

use std::sync::{Mutex, PoisonError};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Builder, Client},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::Instant;

use super::{
    failures::Refusal,
    upload::Upload,
    upstream_buffers::{BUFFER, IDLE_TIME, LIFETIME},
    upstream_connector::Connector,
};
use crate::connections::MAX_FIELDS;

type Http1Client = Client<Connector, Upload>;

pub(super) struct Http1Connections {
    connector: Connector,
    /// A client that keeps its connections, and the instant at which it was made.
    keeping: Mutex<(Http1Client, Instant)>,
    /// A client whose every request has a connection of its own.
    opening: Http1Client,
}

impl Http1Connections {
    pub(super) fn new(connector: Connector) -> Self {
        let mut opening = client();
        opening.pool_max_idle_per_host(0);
        Self {
            keeping: Mutex::new((client().build(connector.clone()), Instant::now())),
            opening: opening.build(connector.clone()),
            connector,
        }
    }

    /// Sends a request on a kept connection, or on a new one.
    pub(super) async fn request(
        &self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Refusal> {
        let client = self.keeping();
        client.request(request).await.map_err(Refusal::Http1)
    }

    /// Sends a request on a new connection.
    pub(super) async fn request_anew(
        &self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Refusal> {
        let response = self.opening.request(request).await;
        response.map_err(Refusal::Http1)
    }

    /// Makes the kept connections this much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: std::time::Duration) {
        let mut keeping = self.keeping.lock().unwrap();
        keeping.1 -= by;
    }

    /// The client that keeps connections. The connections of an old one end with their requests.
    fn keeping(&self) -> Http1Client {
        let mut keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let (client, since) = &mut *keeping;
        if since.elapsed() >= LIFETIME {
            *client = self::client().build(self.connector.clone());
            *since = Instant::now();
        }
        client.clone()
    }
}

pub(super) fn client() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .http1_max_buf_size(BUFFER as usize)
        .http1_max_headers(MAX_FIELDS)
        // A proxy removes the blank of `Server : x` (RFC 9112, 5.1).
        .http1_allow_spaces_after_header_name_in_responses(true);
    builder
}
