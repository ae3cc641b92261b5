//! Request bodies. If a handler drops a body early, its rest is read: closing a connection with unread bytes resets
//! it, and the peer may lose the response.

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{body::Bytes, extract::Request, response::Response};
use http::{
    HeaderValue, StatusCode,
    header::{CONNECTION, EXPECT},
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use super::timeouts::{ActiveRequest, ConnectionTimer};

/// The most bytes read after the response. For a longer body the response announces that the connection
/// closes.
const MAX_REST: u64 = 256 * 1024;

/// How long the peer has after the response to send the rest, or to read the response and close the connection.
const REST_TIME: Duration = Duration::from_secs(2);

/// The length of a rest without a known length.
const UNKNOWN: u64 = u64::MAX;

/// The body of a request.
pub struct RequestBody {
    /// `None` only during drop.
    incoming: Option<Incoming>,
    /// `None` in HTTP/2, where a stream closes alone, and for a request without a body.
    rest: Option<Rest>,
}

/// The part of a body that has not arrived.
struct Rest {
    left: Arc<AtomicU64>,
    responded: oneshot::Receiver<()>,
    _active: ActiveRequest,
}

/// The connection's half of a [`RequestBody`].
pub(super) struct Unread {
    left: Arc<AtomicU64>,
    responded: oneshot::Sender<()>,
}

impl RequestBody {
    /// The body of an HTTP/2 stream, or an empty one.
    pub(super) const fn of_stream(incoming: Incoming) -> Self {
        Self {
            incoming: Some(incoming),
            rest: None,
        }
    }

    /// The request of an HTTP/1 connection. Its response has to pass through [`Unread::respond`].
    pub(super) fn of_connection(
        request: Request<Incoming>,
        timer: &Arc<ConnectionTimer>,
    ) -> (Request<Self>, Option<Unread>) {
        if request.body().is_end_stream() {
            return (request.map(Self::of_stream), None);
        }
        // A client that waits for `100 Continue` may send no body.
        let length = if request.headers().contains_key(EXPECT) {
            UNKNOWN
        } else {
            left(request.body())
        };
        let left = Arc::new(AtomicU64::new(length));
        let (responded, response) = oneshot::channel();
        let rest = Rest {
            left: Arc::clone(&left),
            responded: response,
            _active: timer.hold(),
        };
        let request = request.map(|incoming| Self {
            incoming: Some(incoming),
            rest: Some(rest),
        });
        (request, Some(Unread { left, responded }))
    }
}

fn left(incoming: &Incoming) -> u64 {
    incoming.size_hint().exact().unwrap_or(UNKNOWN)
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let Some(incoming) = &mut this.incoming else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        if let Some(rest) = &this.rest {
            let left = match &frame {
                Some(Ok(frame)) if frame.is_data() => left(incoming),
                Some(Err(_)) => UNKNOWN,
                // Trailers end the body.
                _ => 0,
            };
            rest.left.store(left, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.incoming.as_ref().map(Incoming::size_hint);
        hint.unwrap_or_default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(incoming), Some(rest)) = (self.incoming.take(), self.rest.take()) else {
            return;
        };
        if rest.left.load(Ordering::Relaxed) > 0
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(rest.read(incoming));
        }
    }
}

impl Rest {
    /// Reads to the end, up to a time and a length. The connection stays open meanwhile, since the body is not
    /// dropped.
    async fn read(self, mut body: Incoming) {
        // Polling the body before the response begins would make the server send `100 Continue`.
        drop(self.responded.await);
        let end = async {
            let mut read = 0;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                read += frame.data_ref().map_or(0, Bytes::len) as u64;
                if read > MAX_REST {
                    // A peer whose sending blocks will read the response.
                    pending::<()>().await;
                }
            }
        };
        drop(timeout(REST_TIME, end).await);
    }
}

impl Unread {
    /// Adds `Connection: close` to a response if too much of the request is still to arrive.
    pub(super) fn respond<B>(self, mut response: Response<B>) -> Response<B> {
        let status = response.status();
        let is_over = self.left.load(Ordering::Relaxed) > MAX_REST
            || (status == StatusCode::REQUEST_TIMEOUT && self.left.load(Ordering::Relaxed) > 0);
        if is_over && status != StatusCode::SWITCHING_PROTOCOLS {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let _ = self.responded.send(());
        response
    }
}
