//! The response body on its way to the client.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{BoxError, body::Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{permit::RequestPermit, progress::Progress};

/// A body that ends if no part arrives in either direction for too long.
pub(super) struct Download<B = Incoming, T = RequestPermit> {
    body: B,
    progress: Progress,
    limit: Duration,
    /// Started when the body is first pending.
    silence: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _ticket: T,
}

impl<B, T> Download<B, T> {
    pub(super) fn new(body: B, progress: Progress, limit: Duration, permit: T) -> Self {
        progress.note();
        Self {
            body,
            progress,
            limit,
            silence: None,
            _ticket: permit,
        }
    }
}

impl<B, T> Body for Download<B, T>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    T: Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.progress.note();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let (progress, limit) = (&this.progress, this.limit);
        let silence = this
            .silence
            .get_or_insert_with(|| Box::pin(progress.clone().silence(limit)));
        ready!(silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(Silent.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// No part arrived in either direction.
#[derive(Debug)]
struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing has come in either direction")
    }
}

impl Error for Silent {}
