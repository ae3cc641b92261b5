//! Connections that become WebSockets.

use http::{
    HeaderMap, HeaderValue, Method, Version,
    header::{CONNECTION, UPGRADE},
    request::Parts,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::{fields::lists, front::Ticket};

/// The only protocol that a connection may change to. In any other, such as HTTP/2, requests would follow that no rule
/// has seen.
const WEBSOCKET: &str = "websocket";

/// Whether a request wants its connection to become a WebSocket.
pub(super) fn is_asked(parts: &Parts) -> bool {
    parts.version == Version::HTTP_11
        && parts.method == Method::GET
        && lists(&parts.headers, CONNECTION, "upgrade")
        && is_websocket(&parts.headers)
}

/// The client's connection, if the request wants it to become a WebSocket.
pub(super) fn asked(parts: &mut Parts) -> Option<OnUpgrade> {
    if !is_asked(parts) {
        return None;
    }
    parts.extensions.remove()
}

pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(UPGRADE).iter();
    let first = values.next().map(HeaderValue::as_bytes);
    values.next().is_none()
        && first.is_some_and(|first| first.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Adds the fields that ask for a WebSocket, or agree to it.
pub(super) fn say(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Hands bytes on in both directions until both ends are closed.
pub(super) fn tunnel(client: OnUpgrade, upstream: OnUpgrade, ticket: Ticket) {
    tokio::spawn(async move {
        let io = TokioIo::<Upgraded>::new;
        if let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) {
            // An end that breaks off ends the other.
            drop(copy_bidirectional(&mut io(client), &mut io(upstream)).await);
        }
        drop(ticket);
    });
}
