//! Responses, as the client of this project reads them.

use http::{HeaderMap, StatusCode};
use testkit::fuzz::client_responses::NextStep;
use tower_ratelimit::clock::{ManualClock, Timestamp};
use tower_ratelimit_client::{Advice, Pacer, Units};

/// Passes a response to a client that has sent its first request.
pub(crate) fn respond(status: StatusCode, headers: &HeaderMap) -> NextStep {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let pacer = Pacer::learning_builder().clock(clock).seed(1).build();
    let (pacer, api) = (pacer.unwrap(), "https://a.example".parse().unwrap());
    let mut turn =
        testkit::now(pacer.turn_of(&api, [Units::requests(1), Units::tokens(9)])).unwrap();
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
