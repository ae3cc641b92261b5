#![no_main]

use http::{HeaderMap, StatusCode};
use testkit::fuzz::responses::{Heard, check};
use tower_ratelimit::{
    ManualClock, Timestamp,
    client::{Advice, Pacer},
};

/// Has a client hear the response to its first request.
fn hear(status: StatusCode, headers: &HeaderMap) -> Heard {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let pacer = Pacer::learning_builder().clock(clock).seed(1).build();
    let (pacer, api) = (pacer.unwrap(), "https://a.example".parse().unwrap());
    let turn = testkit::now(pacer.turn(&api, 1)).unwrap();
    let advice = turn.learn(status, headers);
    let stats = pacer.stats(&api);
    Heard {
        retry_after: match advice {
            Advice::RetryAfter(wait) => Some(wait),
            _ => None,
        },
        paused_for: stats.paused_for,
        left: stats.left,
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data, hear));
