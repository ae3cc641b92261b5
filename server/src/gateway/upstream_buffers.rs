//! Bounds of the connections to the upstream. Without them memory would grow with the number of clients that do not
//! read.

use std::time::Duration;

/// How long an idle connection to the upstream is kept. Some servers close theirs after 5 seconds, and a request must
/// not be sent into a closing connection.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(4);

/// How long a connection to the upstream gets new requests, so that a change of its name's addresses takes effect.
pub(super) const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The most buffered bytes on a connection: of a response in HTTP/1.1, its header included, before the client reads
/// it, of a response's header in HTTP/2, and of a request before the upstream reads it.
pub(super) const BUFFER: u32 = 32 * 1024;

/// The most bytes of an HTTP/2 response in flight to a client that does not read. The window of a connection is the
/// sum of those of all its requests, so that one cannot block the others.
pub(super) const WINDOW: u32 = 64 * 1024;

/// The largest window of HTTP/2.
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The window of a connection with this many streams.
pub(super) fn all_windows(streams: u32) -> u32 {
    let all = WINDOW.saturating_mul(streams.saturating_add(1));
    all.min(MAX_WINDOW)
}
