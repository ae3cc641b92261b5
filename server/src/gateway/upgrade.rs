//! Connections that become WebSockets.

use std::{io, pin::pin, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Version,
    header::{CONNECTION, UPGRADE},
    request::Parts,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::watch,
};

use super::{fields::lists, frames::Frames, progress::Progress, ticket::Ticket};
use crate::life;

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

/// A frame that closes a WebSocket with code 1001: the server goes away.
const CLOSE: [u8; 4] = [0x88, 2, 0x03, 0xe9];

/// The same as a client sends it, with a mask. A mask protects from scripts that choose the payload; nobody chooses this
/// one, so its mask is zero.
const MASKED_CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

/// Hands bytes on in both directions until both ends are closed, or silent for too long.
pub(super) fn tunnel(
    client: OnUpgrade,
    upstream: OnUpgrade,
    silence: Duration,
    (stopped, ticket): (watch::Receiver<bool>, Ticket),
) {
    tokio::spawn(async move {
        let io = TokioIo::<Upgraded>::new;
        if let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) {
            hand_on(io(client), io(upstream), silence, stopped).await;
        }
        drop(ticket);
    });
}

/// Ends when nothing has come from either end for too long, or no end takes what came.
///
/// Once the gateway stops, the client gets a close frame. The client's answer goes to the upstream and closes that end,
/// after all that the client sent before.
pub(super) async fn hand_on<A, B>(
    client: A,
    upstream: B,
    silence: Duration,
    stopped: watch::Receiver<bool>,
) where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let progress = Progress::new();
    let (mut from_client, to_client) = split(client);
    let (mut from_upstream, to_upstream) = split(upstream);
    let mut up = Direction::new(to_upstream, &progress);
    let mut down = Direction::new(to_client, &progress);
    let both = async {
        // An end that breaks off ends the other.
        tokio::try_join!(
            up.hand_over_all(&mut from_client, &stopped),
            down.hand_over_until(&mut from_upstream, life::wait(stopped.clone())),
        )
    };
    tokio::select! {
        _ = both => {}
        () = progress.clone().silence(silence) => {}
    }
}

/// One direction of a tunnel.
struct Direction<'p, W> {
    to: W,
    frames: Frames,
    progress: &'p Progress,
}

impl<'p, W: AsyncWrite + Unpin> Direction<'p, W> {
    fn new(to: W, progress: &'p Progress) -> Self {
        Self {
            to,
            frames: Frames::default(),
            progress,
        }
    }

    /// Hands bytes on until their end. If a client that got the gateway's close frame ends without one of its own, the
    /// upstream gets one nevertheless.
    async fn hand_over_all(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        stopped: &watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut part = vec![0; PART];
        loop {
            let length = from.read(&mut part).await?;
            if length == 0 {
                if self.may_close() && *stopped.borrow() {
                    self.write(&MASKED_CLOSE).await?;
                }
                return self.to.shutdown().await;
            }
            self.progress.note();
            self.frames.read_all(&part[..length]);
            self.write(&part[..length]).await?;
        }
    }

    /// Hands bytes on until their end or the stop. Then follow the rest of the frame and a close frame, and no more: no
    /// frame may follow that one (RFC 6455, 5.5.1).
    async fn hand_over_until(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let mut part = vec![0; PART];
        let mut stop = pin!(stop);
        let mut is_stopped = false;
        loop {
            if is_stopped && self.may_close() {
                self.frames.read_all(&CLOSE);
                self.write(&CLOSE).await?;
            }
            let length = tokio::select! {
                length = from.read(&mut part) => length?,
                () = stop.as_mut(), if !is_stopped => {
                    is_stopped = true;
                    continue;
                }
            };
            if length == 0 {
                return self.to.shutdown().await;
            }
            self.progress.note();
            let mut part = &part[..length];
            if !is_stopped {
                self.frames.read_all(part);
            } else if self.frames.has_closed() {
                continue;
            } else {
                part = &part[..self.frames.read_frame(part)];
            }
            self.write(part).await?;
        }
    }

    /// Whether a close frame may be written now.
    fn may_close(&self) -> bool {
        self.frames.is_between() && !self.frames.has_closed()
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes).await?;
        self.to.flush().await
    }
}
