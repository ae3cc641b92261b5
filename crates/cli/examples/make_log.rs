//! Writes an access log in the combined format, or in a JSON format of nginx: `cargo run --release
//! -p tower-ratelimit-cli --example make_log -- 10000000 json > access.log`.

use std::io::{self, BufWriter, Write};

#[path = "../tests/support/access_log.rs"]
mod access_log;

/// Midnight of the day of the log.
const MIDNIGHT: u64 = 1_795_132_800;

fn main() -> io::Result<()> {
    let lines = std::env::args().nth(1).and_then(|lines| lines.parse().ok());
    let lines = lines.unwrap_or(100_000);
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    match std::env::args().nth(2).as_deref() {
        Some("json") => write_json(lines, &mut out)?,
        _ => access_log::write_log(lines, &mut out)?,
    }
    out.flush()
}

fn write_json(lines: u64, out: &mut impl Write) -> io::Result<()> {
    for logged in access_log::requests(lines) {
        let client = logged.client;
        writeln!(
            out,
            "{{\"msec\":\"{}.000\",\"remote_addr\":\"10.{}.{}.{}\",\"request\":\"{} HTTP/1.1\",\"status\":\"{}\",\"body_bytes_sent\":\"512\",\"http_user_agent\":\"curl/8\"}}",
            MIDNIGHT + logged.second,
            client >> 16 & 255,
            client >> 8 & 255,
            client & 255,
            logged.request,
            logged.status,
        )?;
    }
    Ok(())
}
