//! Connections that become WebSockets.

use std::{io, pin::pin, time::Duration};

use http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::{Notify, watch},
};
use tower_ratelimit::concurrency::RequestPermits;

use super::{
    hop_by_hop_headers::requests_websocket, permit::RequestPermit, progress::Progress,
    websocket_frames::Frames,
};
use crate::shutdown;

/// The most bytes that a tunnel reads from one end before it writes them to the other.
const PART: usize = 8 * 1024;

/// The longest silence after one end has ended. A WebSocket is of no use from then on, but it holds its place and its
/// permits while the other end stays open.
const ENDING: Duration = Duration::from_secs(60);

/// The upgrade of the client's connection, if the request is for a WebSocket.
pub(super) fn take_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    if !requests_websocket(parts) {
        return None;
    }
    parts.extensions.remove()
}

/// A close frame with the code 1001, "going away".
const CLOSE: [u8; 4] = [0x88, 2, 0x03, 0xe9];

/// The masked close frame, as clients send it. The mask protects against scripts that choose the payload. The gateway
/// chooses this payload, so the mask is zero.
const MASKED_CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

/// Forwards bytes in both directions until both ends close, or are silent for too long.
pub(super) fn tunnel(
    client: OnUpgrade,
    upstream: OnUpgrade,
    silence: Duration,
    (stopped, permits): (
        watch::Receiver<bool>,
        (RequestPermit, Option<RequestPermits>),
    ),
) {
    tokio::spawn(async move {
        let io = TokioIo::<Upgraded>::new;
        if let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) {
            hand_on(io(client), io(upstream), silence, stopped).await;
        }
        drop(permits);
    });
}

/// Completes when both ends are silent for too long, or do not read. After one of them has ended, a minute is too long.
///
/// When the gateway stops, the client gets a close frame. Its answer, after all that it sent before, goes to the
/// upstream and closes that end.
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
    let ended = Notify::new();
    let mut up = Direction::new(to_upstream, &progress, &ended);
    let mut down = Direction::new(to_client, &progress, &ended);
    let both = async {
        // If one end breaks off, the other closes.
        tokio::try_join!(
            up.hand_over_all(&mut from_client, &stopped),
            down.hand_over_until(&mut from_upstream, shutdown::wait(stopped.clone())),
        )
    };
    let unanswered = async {
        ended.notified().await;
        progress.clone().silence(ENDING).await;
    };
    tokio::select! {
        _ = both => {}
        () = unanswered => {}
        () = progress.clone().silence(silence) => {}
    }
}

/// One direction of a tunnel.
struct Direction<'p, W> {
    to: W,
    frames: Frames,
    progress: &'p Progress,
    ended: &'p Notify,
}

impl<'p, W: AsyncWrite + Unpin> Direction<'p, W> {
    fn new(to: W, progress: &'p Progress, ended: &'p Notify) -> Self {
        Self {
            to,
            frames: Frames::default(),
            progress,
            ended,
        }
    }

    /// Forwards bytes until the end. If a client got the gateway's close frame and ends without one of its own, the
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
                return self.end().await;
            }
            self.progress.note();
            self.frames.read_all(&part[..length]);
            self.write(&part[..length]).await?;
        }
    }

    /// Forwards bytes until the end or the stop. At the stop, completes the current frame and sends a close frame,
    /// and nothing more: no frame may follow it (RFC 6455, 5.5.1).
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
                return self.end().await;
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

    async fn end(&mut self) -> io::Result<()> {
        self.progress.note();
        self.ended.notify_one();
        self.to.shutdown().await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes).await?;
        self.to.flush().await
    }
}
