//! Writes an access log in the combined format: `cargo run --release -p tower-ratelimit-cli --example
//! make_log -- 10000000 > access.log`.
//!
//! The same in every run: 20,000 clients, of which few ask often, over a day; one of them scrapes.

use std::io::{self, BufWriter, Write};

const CLIENTS: f64 = 20_000.0;
const DAY: u64 = 86_400;

fn main() -> io::Result<()> {
    let lines = std::env::args().nth(1).and_then(|lines| lines.parse().ok());
    let lines: u64 = lines.unwrap_or(100_000);
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for line in 0..lines {
        // xorshift64 of Marsaglia.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let second = line * DAY / lines;
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        // A few clients ask for most.
        let client = match line % 50 {
            0 if second / 3_600 == 15 => 0,
            _ => 1 + (share.powi(2) * CLIENTS) as u64,
        };
        let (status, path) = match random % 40 {
            0 => (401, "POST /login"),
            1 => (404, "GET /missing"),
            _ => (200, "GET /api/items"),
        };
        writeln!(
            out,
            "10.{}.{}.{} - - [20/Nov/2026:{:02}:{:02}:{:02} +0000] \"{path} HTTP/1.1\" {status} 512 \"-\" \"curl/8\"",
            client >> 16 & 255,
            client >> 8 & 255,
            client & 255,
            second / 3_600,
            second / 60 % 60,
            second % 60
        )?;
    }
    out.flush()
}
