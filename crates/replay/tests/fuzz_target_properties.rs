//! The property of the fuzz target for log lines, as a property test for machines without a fuzzer.

#[path = "../../../fuzz/adapters/log_line_parser.rs"]
mod adapter;

use proptest::prelude::*;
use testkit::fuzz::{log_lines::check, random::data};

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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn log_lines(data in data(6, LINES)) {
        check(&data, adapter::read);
    }
}
