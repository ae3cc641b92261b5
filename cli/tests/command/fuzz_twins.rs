//! The property of the fuzz target for log lines, as a property test for machines without a fuzzer.

use proptest::{collection::vec, prelude::*, sample::select};
use testkit::fuzz::log_lines::{LogLine, check};

const LINES: &[&str] = &[
    "203.0.113.7 - - [21/Nov/2026:03:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"",
    "{\"ts\":1795230001.25,\"status\":200,\"request\":{\"uri\":\"/\"}}",
    "{\"msec\":\"1795230001.250\",\"status\":\"200\",\"request\":\"GET / HTTP/1.1\"}",
    "[21/Nov/2026:03:00:01 +0000] \"",
    "] \"",
    "[",
    "29/Feb/2100:23:59:60 -1400",
    "2026-11-21T03:00:01.25+01:00",
    "1e400",
    "\"GET /",
    " HTTP/1.1\" ",
    "\"",
    "\\",
    "\\\"",
    "\\x22",
    "\\x",
    "\\u0000",
    "{",
    "}",
    ":",
    ",",
    " ",
    "-",
    "\n",
    "\n",
    "\0",
    "\u{e9}",
    "\t",
    "a",
    "0",
];

/// Half random bytes, half pieces of lines.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let pieces = vec(select(LINES), 0..16).prop_map(|pieces| pieces.concat().into_bytes());
    let mixed = (vec(any::<u8>(), 6), pieces).prop_map(|(head, pieces)| [head, pieces].concat());
    prop_oneof![1 => vec(any::<u8>(), 0..200), 3 => mixed]
}

fn read(line: &[u8]) -> Result<LogLine, &'static str> {
    let line = tower_ratelimit_cli::fuzzing::read_line(line)?;
    Ok(LogLine {
        at: line.at,
        client: line.client,
        user: line.user,
        method: line.method,
        uri: line.uri,
        status: line.status,
        user_agent: line.user_agent,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn log_lines(data in data()) {
        check(&data, read);
    }
}
