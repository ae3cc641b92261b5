//! Trailers that the gateway requested for its rules, from a client that did not.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::header::TRAILER;
use http_body::{Frame, SizeHint};

/// In the extensions of a response whose trailers the rules alone read.
#[derive(Clone, Copy)]
struct Hidden;

/// Marks a response whose trailers the rules alone read.
pub(super) fn mark(response: &mut Response) {
    response.headers_mut().remove(TRAILER);
    response.extensions_mut().insert(Hidden);
}

/// The response without its trailers, if it is marked. The rules have to read it before.
pub(super) fn hide(mut response: Response) -> Response {
    match response.extensions_mut().remove::<Hidden>() {
        Some(Hidden) => response.map(|body| Body::new(WithoutTrailers(body))),
        None => response,
    }
}

/// A body without its trailers.
struct WithoutTrailers(Body);

impl http_body::Body for WithoutTrailers {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
                Some(Ok(frame)) if frame.is_trailers() => {}
                frame => return Poll::Ready(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
