//! Property tests of what the fuzz targets check, for machines where no fuzzer runs. `fuzz/README.md`
//! has the commands that run the targets.

#[cfg(feature = "rules")]
#[path = "../fuzz/adapters/host_parser.rs"]
mod hosts;
#[cfg(feature = "rules")]
#[path = "../fuzz/adapters/rule_file_parser.rs"]
mod rule_files;
#[cfg(feature = "rules")]
#[path = "../fuzz/adapters/rule_path_matcher.rs"]
mod rule_paths;
#[path = "../fuzz/adapters/state_file_reader.rs"]
mod state_files;
#[cfg(feature = "llm")]
#[path = "../fuzz/adapters/usage_reader.rs"]
mod usage;

use proptest::{collection::vec, prelude::*};
use testkit::fuzz::random::{config, data};

const ADDRESSES: &[&str] = &[
    "203.0.113.7",
    "6.6.6.6",
    "10.0.0.2",
    "10.255.0.9",
    "2001:db8::1",
    "[2001:db8::1]",
    "2001:db8:ffff::7",
    "::ffff:10.0.0.3",
    "[::ffff:6.6.6.6]",
    "::",
    "unknown",
    "_hidden",
    "fe80::1%eth0",
    ":80",
    ":65536",
    ":",
    ",",
    ", ",
    ",",
    "\n",
    " ",
    "\t",
    "0",
    ".",
    "x",
    "\u{e9}",
    "\0",
];

const ELEMENTS: &[&str] = &[
    "for=",
    "For=",
    "by=",
    "host=",
    "proto=https",
    "=",
    ";",
    ";",
    ",",
    ", ",
    "\n",
    "\"",
    "\"",
    "\\",
    "\\\"",
    " ",
    "\t",
    "203.0.113.7",
    "6.6.6.6",
    "10.0.0.2",
    "[2001:db8::1]",
    "[2001:db8:ffff::7]",
    "[::ffff:10.0.0.3]",
    ":80",
    ":_x",
    ":65536",
    "unknown",
    "_hidden",
    "@",
    "\u{e9}",
    "for=6.6.6.6",
    "for=10.0.0.2,",
    "for=\"[2001:db8::1]:80\"",
    "for=\"",
    "\0",
    "for=203.0.113.7",
    "for=203.0.113.7,",
    ";for=6.6.6.6",
    "for=10.0.0.2;for=10.0.0.3,",
    ",for=6.6.6.6;x=\\\"",
    ";x=y",
    "\n\n",
];

const RATES: &[&str] = &[
    "1",
    "0",
    "100",
    "18446744073709551615",
    "99999999999999999999",
    "1000000",
    "/",
    "/",
    " ",
    "s",
    "sec",
    "seconds",
    "m",
    "minute",
    "hours",
    "d",
    "ns",
    "us",
    "ms",
    "minu",
    "-",
    "+",
    ".",
    "\u{e9}",
    "\u{a0}",
    "\t",
    "100/minute",
    "100/minute ",
    "5/10s ",
    " burst 7",
    " burst",
    " leaky_bucket queue 3",
    " leaky-bucket",
    " queue 3",
    " fixed_window",
    " sliding_window",
    " slices 6",
    " sliding_log",
    " token_bucket",
    " refill_every 30s",
    " refill-every 1 minute",
    " soft 10%",
    " soft 5",
    "%",
    "_",
    "+1/s",
    "1/1s",
    "5/",
    "/10s",
];

const CONTENT_TYPES: &[&str] = &[
    "application/grpc",
    "Application/GRPC",
    "application/",
    "grpc",
    "-web",
    "-web-text",
    "+proto",
    "+",
    ";",
    "; charset=utf-8",
    " ",
    "\t",
    "\n",
    "x",
    ",",
    "text/plain",
    "\u{e9}",
];

/// Pieces of rule files.
#[cfg(feature = "rules")]
const FILES: &[&str] = &[
    "rules:\n",
    "rules: [",
    "  - name: a\n",
    "  - {name: b, quota: 1/s}\n",
    "    quota: 5/minute burst 7\n",
    "    quota: [1/s, {rate: 5/day, name: x}]\n",
    "    match: {path: \"/a/{id}\", time: {from: \"22:00\", to: \"02:00\", days: fri-mon}}\n",
    "    match: {header: {x: true}, client: 10.0.0.0/8, not: {host: \"*.a\"}}\n",
    "    key: [client_ip, {path_param: id}]\n",
    "    key: {first_of: [{header: x}, global]}\n",
    "    tier: {header: x, default: f, quotas: {f: q}}\n",
    "    replaces: [a, b]\n",
    "    schedule: [{time: {days: sat}, quota: q}]\n",
    "quotas: {q: unlimited}\n",
    "version: 1\n",
    "&x ",
    "*x",
    "<<: ",
    "[[rules]]\nname = \"a\"\nquota = \"1/s\"\n",
    "match.path = ['/a']\n",
    "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s\"}]}",
    "\"",
    ":",
    ",",
    "[",
    "]",
    "{",
    "}",
    "\t",
    "\n",
    " ",
    "-",
    "#",
    "|",
    "\u{e9}",
    "\r\n",
    "\0",
];

/// Pieces of hosts, and characters at which servers cut them.
#[cfg(feature = "rules")]
const HOSTS: &[&str] = &[
    "shop",
    "example",
    "SHOP",
    ".",
    ".",
    ".",
    ":",
    ":",
    "80",
    "[",
    "]",
    "::",
    "::1",
    "2001:db8",
    "127",
    "0x7f",
    "1",
    "127.0.0.1",
    "-",
    "_",
    "~",
    "@",
    "/",
    "?",
    "#",
    "\\",
    "%",
    "%61",
    ",",
    ";",
    "*",
    " ",
    "\t",
    "\0",
    "\u{e9}",
];

/// Pieces of responses of language models.
#[cfg(feature = "llm")]
const RESPONSES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u00e9",
    "\\ud83d\\ude00",
    " ",
    "\n",
    "\r\n",
    "\n\n",
    "data: ",
    "data:",
    "data: [DONE]\n\n",
    "event: ping\n",
    ": comment\n",
    "{\"usage\":",
    "{\"prompt_tokens\":12,",
    "\"completion_tokens\":34}",
    "\"output_tokens\":34}",
    "{\"choices\":[{\"delta\":{\"content\":\"",
    "{\"response\":{\"usage\":",
    "[{\"usageMetadata\":{\"promptTokenCount\":5,\"thoughtsTokenCount\":6}},",
    "\"model\":\"m\",",
    "\"\\u006dodel\":",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "1.5",
    "1e9",
    "null",
    "true",
    "\u{e9}",
    "\0",
];

#[cfg(feature = "llm")]
proptest! {
    #![proptest_config(config())]

    #[test]
    fn usage(data in data(4, RESPONSES)) {
        testkit::fuzz::usage::check(&data, usage::read);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn x_forwarded_for(data in data(1, ADDRESSES)) {
        testkit::fuzz::x_forwarded_for::check(&data);
    }

    #[test]
    fn forwarded(data in data(1, ELEMENTS)) {
        testkit::fuzz::forwarded::check(&data);
    }

    #[test]
    fn single_ip_headers(data in data(1, ADDRESSES)) {
        testkit::fuzz::single_ip_headers::check(&data);
    }

    #[test]
    fn quota(data in data(1, RATES)) {
        // Without the byte that chooses.
        testkit::fuzz::quota::check(data.get(1..).unwrap_or_default());
    }

    #[test]
    fn rendered_headers(data in vec(any::<u8>(), 0..120)) {
        testkit::fuzz::rendered_headers::check(&data);
    }

    #[test]
    fn state_files(data in vec(any::<u8>(), 0..60)) {
        state_files::check(&data);
    }

    #[test]
    fn grpc(data in data(1, CONTENT_TYPES)) {
        testkit::fuzz::grpc_detection::check(data.get(1..).unwrap_or_default());
    }
}

#[cfg(feature = "rules")]
proptest! {
    #![proptest_config(config())]

    #[test]
    fn hosts(pieces in vec(proptest::sample::select(HOSTS), 0..6), bytes in vec(any::<u8>(), 0..20)) {
        testkit::fuzz::hosts::check(pieces.concat().as_bytes(), hosts::parse);
        testkit::fuzz::hosts::check(&bytes, hosts::parse);
    }

    #[test]
    fn rule_files(data in data(1, FILES)) {
        testkit::fuzz::rules::check_file(&data, rule_files::read);
    }

}

#[cfg(feature = "rules")]
proptest! {
    // Each case makes rules of several paths.
    #![proptest_config(ProptestConfig { cases: config().cases / 4, ..config() })]

    #[test]
    fn rule_paths(data in vec(any::<u8>(), 0..60)) {
        testkit::fuzz::rules::check_path(&data, rule_paths::fits);
    }
}
