//! An access log, equal in all runs: over a day a few clients send most requests, and one scrapes
//! in the afternoon.

use std::io::{self, Write};

const DAY: u64 = 86_400;

/// A request of the log.
pub(crate) struct Logged {
    /// The number of the client: its address after `10.`.
    pub(crate) client: u64,
    /// The second of the day.
    pub(crate) second: u64,
    pub(crate) status: u16,
    /// The method and the path.
    pub(crate) request: &'static str,
}

/// The requests of a log with this many lines.
pub(crate) fn requests(lines: u64) -> impl Iterator<Item = Logged> {
    let clients = (lines / 500).max(1);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    (0..lines).map(move |line| {
        // xorshift64 of Marsaglia.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let second = line * DAY / lines;
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let client = match line % 2 {
            // Ten minutes long.
            0 if second / 600 == 90 => 0,
            // A few clients send most requests.
            _ => 1 + (share.powi(2) * clients as f64) as u64,
        };
        let (status, request) = match random % 40 {
            0 => (401, "POST /login"),
            1 => (404, "GET /missing"),
            _ => (200, "GET /api/items"),
        };
        Logged {
            client,
            second,
            status,
            request,
        }
    })
}

/// Writes this many lines in the combined format.
pub(crate) fn write_log(lines: u64, out: &mut impl Write) -> io::Result<()> {
    for logged in requests(lines) {
        let Logged {
            client,
            second,
            status,
            request,
        } = logged;
        writeln!(
            out,
            "10.{}.{}.{} - - [20/Nov/2026:{:02}:{:02}:{:02} +0000] \"{request} HTTP/1.1\" {status} 512 \"-\" \"curl/8\"",
            client >> 16 & 255,
            client >> 8 & 255,
            client & 255,
            second / 3_600,
            second / 60 % 60,
            second % 60
        )?;
    }
    Ok(())
}
