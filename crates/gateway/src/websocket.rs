//! Connections that become WebSockets, and the boundaries of their frames (RFC 6455, 5.2).

use std::{io, pin::pin, time::Duration};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::{Notify, watch},
};
use tower_ratelimit::concurrency::RequestPermits;

use crate::{bodies::Progress, hop_by_hop_headers::RequestPermit};
use tower_ratelimit_service::shutdown;

/// The most bytes that a tunnel reads from one end before it writes them to the other.
const PART: usize = 8 * 1024;

/// The longest silence after one end has ended. A WebSocket is of no use from then on, but it holds its place and its
/// permits while the other end stays open.
const ENDING: Duration = Duration::from_secs(60);

/// A close frame with the code 1001, "going away".
const CLOSE: [u8; 4] = [0x88, 2, 0x03, 0xe9];

/// The masked close frame, as clients send it. The mask protects against scripts that choose the payload. The gateway
/// chooses this payload, so the mask is zero.
const MASKED_CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

/// Forwards bytes in both directions until both ends close, or are silent for too long.
pub(crate) fn tunnel(
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
pub(crate) async fn hand_on<A, B>(
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

/// The opcode of a close frame.
const CLOSE_CODE: u8 = 8;

/// The frames of one direction. Payloads are skipped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frames {
    next: Next,
    /// The remaining bytes of the mask and the payload, after the header.
    left: u64,
    is_close: bool,
    has_closed: bool,
}

/// The part of a frame that the next byte belongs to.
#[derive(Debug, Clone, Copy, Default)]
enum Next {
    #[default]
    Opcode,
    Length,
    /// The remaining bytes of a longer length, and whether a mask follows.
    LongLength {
        bytes: u8,
        is_masked: bool,
    },
    Payload,
}

/// The length of a mask.
const MASK: u64 = 4;

impl Frames {
    /// Whether a frame may begin now.
    const fn is_between(&self) -> bool {
        matches!(self.next, Next::Opcode)
    }

    /// Whether a whole close frame has passed; no other frame may follow.
    const fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Reads all bytes.
    pub(crate) fn read_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[self.read_frame(bytes)..];
        }
    }

    /// Reads at most to the end of the frame. Returns the number of its bytes.
    fn read_frame(&mut self, bytes: &[u8]) -> usize {
        let mut read = 0;
        while read < bytes.len() {
            if let Next::Payload = self.next {
                let rest = (bytes.len() - read) as u64;
                let length = rest.min(self.left);
                self.left -= length;
                read += length as usize;
            } else {
                self.read_header(bytes[read]);
                read += 1;
            }
            if matches!(self.next, Next::Payload) && self.left == 0 {
                self.next = Next::Opcode;
                self.has_closed |= self.is_close;
                return read;
            }
        }
        read
    }

    fn read_header(&mut self, byte: u8) {
        self.next = match self.next {
            Next::Opcode => {
                self.is_close = byte & 0x0f == CLOSE_CODE;
                Next::Length
            }
            Next::Length => {
                let is_masked = byte & 0x80 != 0;
                let long = |bytes| Next::LongLength { bytes, is_masked };
                self.left = 0;
                match byte & 0x7f {
                    126 => long(2),
                    127 => long(8),
                    length => self.payload(length.into(), is_masked),
                }
            }
            Next::LongLength { bytes, is_masked } => {
                self.left = self.left << 8 | u64::from(byte);
                match bytes {
                    1 => self.payload(self.left, is_masked),
                    _ => Next::LongLength {
                        bytes: bytes - 1,
                        is_masked,
                    },
                }
            }
            Next::Payload => Next::Payload,
        };
    }

    fn payload(&mut self, length: u64, is_masked: bool) -> Next {
        let mask = if is_masked { MASK } else { 0 };
        self.left = length.saturating_add(mask);
        Next::Payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a payload of zeros. Its length is encoded in this many bytes after the first.
    fn frame(opcode: u8, length: usize, bytes: usize, is_masked: bool) -> Vec<u8> {
        let mask = u8::from(is_masked) << 7;
        let mut frame = vec![0x80 | opcode];
        match bytes {
            0 => frame.push(mask | length as u8),
            2 => frame.push(mask | 126),
            _ => frame.push(mask | 127),
        }
        frame.extend(&(length as u64).to_be_bytes()[8 - bytes..]);
        frame.resize(frame.len() + length + usize::from(is_masked) * 4, 0);
        frame
    }

    /// Frames with all kinds of headers.
    fn kinds() -> impl Iterator<Item = Vec<u8>> {
        let lengths = [
            (0, 0),
            (1, 0),
            (125, 0),
            (126, 2),
            (300, 2),
            (5, 8),
            (300, 8),
        ];
        let kinds = lengths.into_iter();
        kinds
            .flat_map(|(length, bytes)| [true, false].map(|masked| frame(1, length, bytes, masked)))
    }

    #[test]
    fn frame_ends_at_the_same_byte_however_it_is_cut() {
        for frame in kinds() {
            let both = [&frame[..], &self::frame(CLOSE_CODE, 2, 0, true)].concat();
            for cut in 0..=frame.len() {
                let mut frames = Frames::default();
                assert!(frames.is_between());
                let first = frames.read_frame(&both[..cut]);
                assert_eq!(first, cut);
                assert_eq!(frames.is_between(), cut == 0 || cut == frame.len(), "{cut}");
                if cut < frame.len() {
                    assert_eq!(
                        first + frames.read_frame(&both[cut..]),
                        frame.len(),
                        "{cut}"
                    );
                }
                assert!(frames.is_between() && !frames.has_closed());
                frames.read_all(&both[frame.len()..]);
                assert!(frames.is_between() && frames.has_closed());
            }
        }
    }

    #[test]
    fn frames_that_come_byte_by_byte_end_where_they_do_in_one() {
        let all: Vec<u8> = kinds().flatten().collect();
        let mut ends = 0;
        let mut frames = Frames::default();
        for byte in &all {
            assert_eq!(frames.read_frame(&[*byte]), 1);
            ends += usize::from(frames.is_between());
        }
        assert_eq!(ends, kinds().count());
        let mut frames = Frames::default();
        frames.read_all(&all);
        assert!(frames.is_between());
    }

    #[test]
    fn close_counts_when_it_is_whole() {
        let close = frame(CLOSE_CODE, 2, 0, true);
        let mut frames = Frames::default();
        frames.read_all(&close[..close.len() - 1]);
        assert!(!frames.has_closed());
        frames.read_all(&close[close.len() - 1..]);
        assert!(frames.has_closed());
    }

    #[test]
    fn length_that_no_frame_may_have_does_not_wrap() {
        let mut frames = Frames::default();
        frames.read_all(&[0x82, 0xff]);
        frames.read_all(&[0xff; 8]);
        frames.read_all(&[0; 1000]);
        assert!(!frames.is_between());
    }
}
