//! Requests and decisions that several quotas or limits measure together.

use std::{array, hint::black_box, net::IpAddr};

#[cfg(feature = "several")]
use tower_ratelimit::{Global, key::IpPrefix};
use tower_ratelimit::{
    Headers, Key, Limiter, LocalLimiter, LocalStore, PeerIp, Quota, RateLimitLayer,
    limiter::{Call, Charge, JointLimiter, OpRef, Pending},
};

use crate::{COUNT, USUAL, address, counted};

/// Two quotas of one key.
const BY_SECOND: Quota = USUAL.named("second");
const BY_DAY: Quota = Quota::per_day(1_000_000).named("day");

pub(crate) fn two_quotas() -> LocalLimiter {
    LocalLimiter::new([BY_SECOND, BY_DAY])
}

pub(crate) fn plain_two() -> RateLimitLayer {
    default_two().headers(Headers::none())
}

pub(crate) fn default_two() -> RateLimitLayer {
    RateLimitLayer::new(two_quotas(), PeerIp)
}

/// Limits of an address, of its network, and of all clients. Built apart, so that a layer of another type
/// does not change what the compiler inlines into the requests by one limit.
#[cfg(feature = "several")]
pub(crate) fn all() -> RateLimitLayer<JointLimiter> {
    RateLimitLayer::all([
        USUAL.named("address").by(PeerIp),
        USUAL
            .named("network")
            .by(PeerIp.grouped_by(IpPrefix::new().v4(24))),
        USUAL.named("everybody").by(Global),
    ])
}

#[cfg(feature = "several")]
pub(crate) fn plain_all() -> RateLimitLayer<JointLimiter> {
    all().headers(Headers::none())
}

/// Decisions by the limits of an address, of its network, and of all clients.
pub(crate) fn together() {
    decisions(USUAL, ["address", "network", "everybody"], |number| {
        let address = Key::from(IpAddr::from(address(number)));
        vec![address, Key::from(u64::from(number / 256)), Key::global()]
    });
}

/// Decisions by sixteen limits, each by a key of its own.
pub(crate) fn sixteen() {
    const NAMES: [&str; 16] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
    ];
    decisions(Quota::per_day(1_000), NAMES, |number| {
        let numbers = (0..16).map(|place| u64::from(number) * 16 + place);
        numbers.map(Key::from).collect()
    });
}

fn decisions<const N: usize>(
    quota: Quota,
    names: [&'static str; N],
    keys: impl Fn(u16) -> Vec<Key>,
) {
    let store = LocalStore::new();
    let limits = names.map(|name| {
        let limiter = LocalLimiter::builder(quota.named(name)).build_in(&store);
        limiter.expect("a good quota")
    });
    let limiter = JointLimiter::new(limits).expect("limiters of one store");
    let keys: Vec<_> = (0..COUNT).map(keys).collect();
    let decide = |keys: &Vec<Key>| {
        let charge = |limit: usize| Charge::new(&keys[limit], OpRef::Acquire(1)).limit(limit);
        let charges: [Charge<'_>; N] = array::from_fn(charge);
        let Pending::Ready(answer) = limiter.call(black_box(&Call::of(&charges)));
        black_box(answer.is_ok_and(|decision| decision.is_allowed()));
    };
    keys.iter().for_each(decide);
    counted(|| keys.iter().for_each(decide));
}
