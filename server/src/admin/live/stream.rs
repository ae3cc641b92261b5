//! `GET /v1/live`: a stream of server-sent events, or one of them as JSON.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Query, State},
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;

use super::state::MAX_VIEWERS;
use crate::admin::{
    Admin, Fields,
    answer::{fault, ok},
};

/// The interval of comments while there is no event.
const COMMENT_TIME: Duration = Duration::from_secs(15);

/// The time after which a viewer that found no room may come again, in seconds.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// `GET /v1/live`; with `?once` one event, as JSON.
pub(in crate::admin) async fn live(
    State(admin): State<Admin>,
    Query(fields): Query<Fields>,
) -> Response {
    if fields.contains_key("once") {
        return ok(&admin.snapshot(true));
    }
    let live = admin.live();
    let Ok(permit) = Arc::clone(&live.viewers).try_acquire_owned() else {
        let text = format!("{MAX_VIEWERS} viewers are served at a time");
        let mut answer = fault(StatusCode::SERVICE_UNAVAILABLE, text);
        answer.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        return answer;
    };
    let (to, body) = mpsc::channel(1);
    let events = live.events.subscribe();
    tokio::spawn(feed(admin.event(true), events, to, permit));
    let fields = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (fields, Body::from_stream(ReceiverStream::new(body))).into_response()
}

/// Sends events until the viewer leaves or the process stops. A viewer that reads slowly gets the newest only.
async fn feed(
    first: Bytes,
    mut events: watch::Receiver<Bytes>,
    to: mpsc::Sender<Result<Bytes, Infallible>>,
    _permit: OwnedSemaphorePermit,
) {
    let mut next = first;
    while to.send(Ok(next)).await.is_ok() {
        next = tokio::select! {
            changed = events.changed() => match changed {
                Ok(()) => events.borrow_and_update().clone(),
                Err(_) => return,
            },
            () = sleep(COMMENT_TIME) => Bytes::from_static(b": no news\n\n"),
            () = to.closed() => return,
        };
        if next.is_empty() {
            return;
        }
    }
}
