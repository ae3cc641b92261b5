//! A property test of what the fuzz target of responses checks, for machines where no fuzzer runs.
#![allow(clippy::unwrap_used, reason = "a check that panics has failed")]

use http::{HeaderMap, StatusCode};
use proptest::{collection::vec, prelude::*, sample::select};
use testkit::fuzz::responses::{NextStep, check};
use tower_ratelimit::{ManualClock, Timestamp};
use tower_ratelimit_client::{Advice, Pacer};

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

/// Half of it bytes, half of it parts of fields.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let pieces = vec(select(FRAGMENTS), 0..24).prop_map(|pieces| pieces.concat().into_bytes());
    let mixed = (any::<u8>(), pieces).prop_map(|(choice, mut pieces)| {
        pieces.insert(0, choice);
        pieces
    });
    prop_oneof![1 => vec(any::<u8>(), 0..200), 3 => mixed]
}

/// Passes a response to a client that has sent its first request.
fn respond(status: StatusCode, headers: &HeaderMap) -> NextStep {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let pacer = Pacer::learning_builder().clock(clock).seed(1).build();
    let (pacer, api) = (pacer.unwrap(), "https://a.example".parse().unwrap());
    let turn = testkit::now(pacer.turn(&api, 1)).unwrap();
    let advice = turn.learn(status, headers);
    let stats = pacer.stats(&api);
    NextStep {
        retry_after: match advice {
            Advice::RetryAfter(wait) => Some(wait),
            _ => None,
        },
        paused_for: stats.paused_for,
        left: stats.left,
    }
}

/// 4,000 cases, unless `PROPTEST_CASES` is set.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 4_000;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn responses(data in data()) {
        check(&data, respond);
    }
}
