//! Decisions by several limits that all have room, each limiter without settings except its limits.

use std::{array, net::IpAddr};

use governor::DefaultKeyedRateLimiter;
use tower_ratelimit::{
    Limiter, LocalLimiter, LocalStore, Quota,
    limiter::{Call, Charge, JointLimiter, OpRef, Pending},
};

use super::{Batches, Decide, EveryKey, Of, check_five, nanos, time};
use crate::{
    random_keys::Spread,
    rate_conversions::Rate,
    report::Table,
    rounds::{interleaved, rounds},
};

pub const SEVERAL: &str = "decision, several limits, 1 k addresses, 1 thread";
pub const ONE: &str = "tower-ratelimit, one bucket";
pub const TWO_QUOTAS: &str = "tower-ratelimit, two quotas of a key";
pub const THREE_LIMITS: &str = "tower-ratelimit, three limits together";
pub const IN_A_STORE: &str = "tower-ratelimit, one bucket in a store";
pub const TWO_GOVERNORS: &str = "governor, two limiters in turn";
pub const THREE_GOVERNORS: &str = "governor, three limiters in turn";

/// Addresses that take turns.
const KEYS: u32 = 1_000;
const COUNT: usize = 100_000;
const ROUNDS: usize = 11;

/// Makes limits with these rates.
pub type MakeSeveral = fn(&[Rate]) -> Box<dyn Batches>;

const KINDS: [(&str, usize, MakeSeveral); 6] = [
    (ONE, 1, quotas_of_a_key),
    (TWO_QUOTAS, 2, quotas_of_a_key),
    (THREE_LIMITS, 3, limits_together),
    (IN_A_STORE, 1, in_a_store),
    (TWO_GOVERNORS, 2, governors_in_turn),
    (THREE_GOVERNORS, 3, governors_in_turn),
];

pub(super) fn several() -> Table {
    let mut limiters = KINDS.map(|(_, count, make)| make(&vec![Rate::SLOW; count]));
    let samples = interleaved(rounds(ROUNDS), &mut limiters, |limiter, round| {
        time_several(&**limiter, round)
    });
    let names = KINDS.iter().map(|(name, ..)| (*name).to_owned());
    nanos(SEVERAL, ONE.to_owned(), names, samples)
}

/// Nanoseconds of a decision about one of [`KEYS`] addresses.
pub fn time_several(limiter: &dyn Batches, round: usize) -> f64 {
    time(limiter, &Spread::Uniform(KEYS), 1, COUNT, round as u64)
}

/// # Panics
///
/// When one of several limits does not limit.
pub(super) fn check_several() {
    for (name, count, make) in KINDS {
        for tight in 0..count {
            let mut rates = vec![Rate::SLOW; count];
            rates[tight] = Rate::FIVE;
            check_five(name, &*make(&rates));
        }
    }
}

/// Names, since quotas of one limiter cannot have the same.
const NAMES: [&str; 16] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
];

fn named(rates: &[Rate]) -> impl Iterator<Item = Quota> {
    let quotas = rates.iter().zip(NAMES);
    quotas.map(|(rate, name)| rate.ours().named(name))
}

/// Quotas of one key, which are charged all or none.
pub fn quotas_of_a_key(rates: &[Rate]) -> Box<dyn Batches> {
    let limiter = match rates {
        [rate] => LocalLimiter::new(rate.ours()),
        rates => LocalLimiter::new(named(rates).collect::<Vec<_>>()),
    };
    Box::new(Of::<IpAddr, _>::new(limiter))
}

fn in_a_store(rates: &[Rate]) -> Box<dyn Batches> {
    let limiter = LocalLimiter::builder(rates[0].ours()).build_in(&LocalStore::new());
    Box::new(Of::<IpAddr, _>::new(limiter.expect("a good quota")))
}

/// Limits with a key each, which are charged all or none.
pub fn limits_together(rates: &[Rate]) -> Box<dyn Batches> {
    let store = LocalStore::new();
    let limits = named(rates).map(|quota| {
        let limiter = LocalLimiter::builder(quota).build_in(&store);
        limiter.expect("a good quota")
    });
    let limiter = JointLimiter::new(limits).expect("limiters of one store");
    Box::new(Of::<IpAddr, _>::new(Together(limiter, rates.len())))
}

/// Limits and their number.
struct Together(JointLimiter<LocalLimiter>, usize);

impl<K: EveryKey> Decide<K> for Together {
    fn decide(&self, key: &K) -> bool {
        let key = key.ours();
        let charge = |limit| Charge::new(&key, OpRef::Acquire(1)).limit(limit);
        let few: [Charge<'_>; 4] = array::from_fn(charge);
        let many: Vec<Charge<'_>>;
        let charges = match few.get(..self.1) {
            Some(charges) => charges,
            None => {
                many = (0..self.1).map(charge).collect();
                &many
            }
        };
        match self.0.call(&Call::of(charges)) {
            Pending::Ready(answer) => answer.is_ok_and(|decision| decision.is_allowed()),
            Pending::Later(_) => panic!("a decision in this process is there at once"),
        }
    }
}

/// Limiters of governor's, called one after another. The first are charged even if a later one denies:
/// governor has no limits that are charged together.
pub fn governors_in_turn(rates: &[Rate]) -> Box<dyn Batches> {
    let limiters = rates.iter().map(|rate| Governor::dashmap(rate.governor()));
    Box::new(Of::<IpAddr, _>::new(InTurn(limiters.collect())))
}

struct InTurn(Vec<Governor>);

type Governor = DefaultKeyedRateLimiter<IpAddr>;

impl Decide<IpAddr> for InTurn {
    fn decide(&self, key: &IpAddr) -> bool {
        (self.0.iter()).all(|limiter| limiter.check_key(key).is_ok())
    }
}
