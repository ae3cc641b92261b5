//! A property test of what the fuzz target of responses checks, for machines where no fuzzer runs.

#[path = "../../../../fuzz/adapters/pacer_responses.rs"]
mod adapter;

use proptest::prelude::*;
use testkit::fuzz::{
    client_responses::check,
    random::{config, data},
};

const FRAGMENTS: &[&str] = &[
    "\0",
    "\u{1}",
    "\u{2}",
    "\n\u{2}",
    "\n\u{3}",
    "\n\u{6}",
    "\n\u{7}",
    "\n\u{c}8",
    "\n\u{d}",
    "\n\u{10}",
    "\n\u{11}",
    "\n\u{12}",
    "\n\u{13}",
    "\n\u{14}",
    "\n\u{15}",
    "\n\u{16}",
    "\n\u{17}",
    "\n\u{18}",
    "\n\u{19}",
    "\n\u{1a}",
    "1.5",
    "6m0s",
    "88ms",
    "d",
    "\"a\"",
    "\"a\";r=5;t=30",
    "\"b\";r=0;t=86400",
    "\"b\";q=10;w=60",
    "a",
    ";r=",
    ";t=",
    ";q=",
    ";w=",
    ";x",
    ";x=\"y\"",
    ";pk=:YQ==:",
    "=",
    ",",
    ", ",
    ";",
    "\"",
    "\\",
    "0",
    "7",
    "999999999999999",
    "1700000030",
    "1700000030000",
    "-1",
    "+",
    ".5",
    "limit=10, remaining=3, reset=7",
    "Tue, 14 Nov 2023 22:13:50 GMT",
    "2023-11-14T22:13:50Z",
    "(",
    ")",
    ":",
    "?1",
    "@1",
    "%\"x\"",
    " ",
    "\t",
    "\u{e9}",
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn responses(data in data(1, FRAGMENTS)) {
        check(&data, adapter::respond);
    }
}
