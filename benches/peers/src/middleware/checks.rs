//! Contenders do what the tables claim.

use http::{Response, header::CONTENT_LENGTH};

use super::{
    Client,
    contenders::{
        DEFAULT, EIGHT_FIELDS, Make, TOWER_RATE_LIMIT, contenders, direct, find, tower_rate_limit,
    },
    several_limits,
};
use crate::rate_conversions::Rate;

/// # Panics
///
/// When a layer allows something other than its burst, or the floor of a denial is not one.
pub fn check() {
    for contender in contenders().iter().filter(|contender| contender.limits) {
        check_burst(contender.name, &mut *contender.client(Rate::FIVE));
    }
    several_limits::check();
    let burst = Rate::FIVE.burst.into();
    check_burst(TOWER_RATE_LIMIT, &mut *tower_rate_limit(burst));
    check_floor();
}

/// # Panics
///
/// When a layer with [`Rate::FIVE`] allows something else. tower's `RateLimit` answers nobody
/// whom it denies: it is not ready.
pub fn check_burst(name: &str, client: &mut dyn Client) {
    let passed = (0..10).filter(|_| client.is_ready() && client.send(7) == 200);
    let passed = passed.count();
    assert_eq!(
        passed, 5,
        "{name} lets {passed} of 10 pass with a burst of 5"
    );
}

/// # Panics
///
/// When the answer that is ready has other fields than this crate's denial, or more or less
/// content.
fn check_floor() {
    let denial = |name| {
        let Make::Axum(make) = find(name).make else {
            panic!("{name} is made for another axum");
        };
        let mut client = direct(make(Rate::USED_UP));
        client.answer(7);
        outline(&client.answer(7))
    };
    let (ready, ours) = (denial(EIGHT_FIELDS), denial(DEFAULT));
    assert_eq!(ready, ours, "the denial that is ready is not like ours");
}

/// The status, the names of the fields, and the length of the content.
fn outline<B>(response: &Response<B>) -> (u16, Vec<String>, String) {
    let fields = response.headers();
    let mut names: Vec<_> = fields.keys().map(ToString::to_string).collect();
    names.sort_unstable();
    let length = format!("{:?}", fields.get(CONTENT_LENGTH));
    (response.status().as_u16(), names, length)
}
