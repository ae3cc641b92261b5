//! Writes an access log in the combined format: `cargo run --release -p tower-ratelimit-cli --example
//! make_log -- 10000000 > access.log`.

use std::io::{self, BufWriter, Write};

#[path = "../tests/support/log.rs"]
mod log;

fn main() -> io::Result<()> {
    let lines = std::env::args().nth(1).and_then(|lines| lines.parse().ok());
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    log::write_log(lines.unwrap_or(100_000), &mut out)?;
    out.flush()
}
