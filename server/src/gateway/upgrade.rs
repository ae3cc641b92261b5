//! Connections that become WebSockets.

use std::{io, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Version,
    header::{CONNECTION, UPGRADE},
    request::Parts,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use super::{fields::lists, progress::Progress, ticket::Ticket};

/// The most bytes that a tunnel takes from one end before it hands them to the other.
const PART: usize = 8 * 1024;

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

/// Hands bytes on in both directions until both ends are closed, or silent for too long.
pub(super) fn tunnel(client: OnUpgrade, upstream: OnUpgrade, silence: Duration, ticket: Ticket) {
    tokio::spawn(async move {
        let io = TokioIo::<Upgraded>::new;
        if let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) {
            hand_on(io(client), io(upstream), silence).await;
        }
        drop(ticket);
    });
}

/// Ends when nothing has come from either end for too long, or no end takes what came.
pub(super) async fn hand_on<A, B>(one: A, other: B, silence: Duration)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let progress = Progress::new();
    let (mut from_one, mut to_one) = split(one);
    let (mut from_other, mut to_other) = split(other);
    let both = async {
        // An end that breaks off ends the other.
        tokio::try_join!(
            hand_over(&mut from_one, &mut to_other, &progress),
            hand_over(&mut from_other, &mut to_one, &progress),
        )
    };
    tokio::select! {
        _ = both => {}
        () = progress.clone().silence(silence) => {}
    }
}

/// Hands bytes on in one direction until their end.
async fn hand_over(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    progress: &Progress,
) -> io::Result<()> {
    let mut part = vec![0; PART];
    loop {
        let length = from.read(&mut part).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        progress.note();
        to.write_all(&part[..length]).await?;
        to.flush().await?;
    }
}
