//! The script and its twin in Rust give the same: the reply, the value and its lifetime, to the byte.
//!
//! In CI some ten thousand calls. `DIFFERENTIAL_OPERATIONS` says how many each test makes instead.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use proptest::{prelude::*, test_runner::TestRunner};
use testkit::{needs, servers::Server};
use tower_ratelimit::{
    Clock, Key, ManualClock, StoreError, StoreErrorKind,
    shared::{Applied, Call, RedisLimiterBuilder, Reply, Store, Write},
};

use crate::{
    differential::{
        any_spec,
        pair::Pair,
        traces::{block, start, tiers, trace},
    },
    quotas::any_move,
    scripts::{
        GENERAL,
        recorded::{Calls, Recorded},
    },
};

/// Longer by so much lives a value that was written at the time of a test.
const HOUR: u64 = 3_600_000;

/// The milliseconds of three centuries.
const ENDLESS: u64 = 10_000_000_000_000;

/// Asks both about each call, and notes where they differ.
struct Both {
    clock: ManualClock,
    script: Recorded,
    redis: Mutex<Calls>,
    /// A change of what counters there are moves a limiter to another key, and back.
    values: Mutex<HashMap<String, Vec<u8>>>,
    spoils: Option<Mutex<Spoiler>>,
    calls: AtomicU64,
    foreign: AtomicU64,
    difference: Mutex<Option<String>>,
}

/// Changes values as somebody else might.
struct Spoiler(u64);

impl Spoiler {
    /// A number below this one.
    fn below(&mut self, most: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % most as u64) as usize
    }

    fn spoiled(&mut self, value: &[u8]) -> Option<Vec<u8>> {
        const MARKS: &[u8] = b"0123456789;:|!h\n-x";
        if value.is_empty() || self.below(4) > 0 {
            return None;
        }
        let mut value = value.to_vec();
        let at = self.below(value.len());
        match self.below(8) {
            0 => value.truncate(at),
            1 => drop(value.remove(at)),
            2 => value.insert(at, MARKS[self.below(MARKS.len())]),
            3 => value.extend_from_within(at..),
            4 => value.extend_from_slice(b"!1767225612345678999h"),
            5 => value.splice(..at, []).for_each(drop),
            _ => value[at] = MARKS[self.below(MARKS.len())],
        }
        Some(value).filter(|value| has_plain_numbers(value))
    }
}

/// The latest instant that Lua tells from the next.
const LATEST_NANOS: u64 = ((1 << 53) - 1) * 1_000;

/// Whether no number begins with a zero that is not its own, which the script may keep as it is, or is
/// too large for Lua to count exactly.
fn has_plain_numbers(value: &[u8]) -> bool {
    let head = value.split(|byte| *byte == b'\n').next().unwrap_or(value);
    let mut numbers = head.split(|byte| !byte.is_ascii_digit());
    numbers.all(|number| {
        let number = str::from_utf8(number).unwrap();
        let is_exact = || {
            number
                .parse()
                .is_ok_and(|number: u64| number <= LATEST_NANOS)
        };
        matches!(number, "" | "0") || !number.starts_with('0') && is_exact()
    })
}

impl Both {
    fn new(server: &Server, spoils: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            clock: ManualClock::new(),
            script: Recorded::new(GENERAL),
            redis: Mutex::new(Calls::new(server)),
            values: Mutex::default(),
            spoils: spoils.map(|seed| Mutex::new(Spoiler(seed))),
            calls: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            difference: Mutex::default(),
        })
    }

    /// The value before a call.
    fn before(&self, key: &str) -> Option<Vec<u8>> {
        let mut values = self.values.lock().unwrap();
        let value = values.get_mut(key)?;
        let spoils = self.spoils.as_ref();
        let spoiled = spoils.and_then(|spoils| spoils.lock().unwrap().spoiled(value));
        if let Some(spoiled) = spoiled {
            self.redis.lock().unwrap().set(key, &spoiled);
            *value = spoiled;
        }
        Some(value.clone())
    }

    /// The value after a call; none of it after a foreign one.
    fn keep(&self, key: &str, value: Option<Vec<u8>>) {
        let mut values = self.values.lock().unwrap();
        match value {
            Some(value) => drop(values.insert(key.to_owned(), value)),
            None => {
                self.redis.lock().unwrap().run(&["DEL", key]);
                values.remove(key);
            }
        }
    }

    fn check(&self, is_so: bool, what: impl FnOnce() -> String) {
        if !is_so {
            self.difference.lock().unwrap().get_or_insert_with(what);
        }
    }
}

/// The write as [`Recorded`] tells it.
fn written(write: &Write) -> Vec<u8> {
    let lifetime = u64::try_from(write.expires_in.as_millis()).unwrap() + HOUR;
    let mut written = write.value.clone();
    written.extend_from_slice(format!(" {lifetime}").as_bytes());
    written
}

impl Store for Both {
    async fn transact(&self, key: &str, call: &Call<'_>) -> Result<Reply, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        let before = self.before(key);
        let arguments = call.script_arguments(Some(now));
        let told = {
            let mut redis = self.redis.lock().unwrap();
            redis.call(&self.script, &[key.to_owned()], &arguments)
        };
        let (reply, write) = (told.replies[0].clone(), told.writes[0].clone());
        let of_the_call = || {
            let value = before
                .as_ref()
                .map(|value| value.escape_ascii().to_string());
            format!("{value:?} by {}", arguments.join(" "))
        };
        match call.apply(before.as_deref(), now) {
            Ok(Applied {
                reply: own,
                write: own_write,
                ..
            }) => {
                self.check(own.as_bytes() == reply, || {
                    let reply = reply.escape_ascii();
                    format!(
                        "{}: {} and {reply}",
                        of_the_call(),
                        own.as_bytes().escape_ascii()
                    )
                });
                let own_written = own_write.as_ref().map(written);
                // Somebody else's number may be of a time for which neither has a number.
                let is_endless = |written: &Option<Vec<u8>>| {
                    let lifetime = written.as_ref()?.rsplit(|byte| *byte == b' ').next()?;
                    Some(str::from_utf8(lifetime).ok()?.parse::<u64>().ok()? > ENDLESS)
                };
                let are_endless = [&own_written, &write].map(is_endless);
                let is_same = match are_endless {
                    [Some(true), Some(true)] => {
                        let values = [&own_written, &write].map(|written| {
                            let mut parts = written.as_ref().unwrap().rsplitn(2, |b| *b == b' ');
                            parts.nth(1).map(<[u8]>::to_vec)
                        });
                        values[0] == values[1]
                    }
                    _ => own_written == write,
                };
                self.check(is_same, || {
                    let shown = |bytes: &Option<Vec<u8>>| {
                        bytes.as_ref().map(|bytes| bytes.escape_ascii().to_string())
                    };
                    format!(
                        "{}: {:?} and {:?}",
                        of_the_call(),
                        shown(&own_written),
                        shown(&write)
                    )
                });
                let after = own_write.map(|write| write.value);
                if let Some(after) = after {
                    self.keep(key, Some(after));
                }
            }
            Err(error) => {
                self.foreign.fetch_add(1, Ordering::Relaxed);
                assert_eq!(error.kind(), StoreErrorKind::ForeignData);
                // The script looks at the entries of a log only as far as it has to.
                let has_log = arguments.iter().any(|argument| argument == "g");
                let is_foreign = reply.starts_with(b"-RATELIMIT");
                self.check(is_foreign || has_log, || {
                    format!("{}: foreign", of_the_call())
                });
                self.keep(key, None);
                return Err(error);
            }
        }
        Ok(Reply::from_bytes(reply))
    }
}

/// Runs traces until as many calls were compared.
fn agreement(calls: u64, spoils: Option<u64>) {
    let runtime = super::scripts::runtime();
    let wanted = std::env::var("DIFFERENTIAL_OPERATIONS");
    let wanted = wanted.map_or(calls, |n| n.parse().expect("a number"));
    let server = runtime.block_on(Server::start());
    let both = Both::new(&server, spoils);
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 4_000,
        cases: 32,
        ..ProptestConfig::default()
    };
    let key = Cell::new(0_u64);
    let inputs = (tiers(any_spec()), block(), start(), trace(any_move()));
    while both.calls.load(Ordering::Relaxed) < wanted {
        let outcome =
            TestRunner::new(config.clone()).run(&inputs, |(tiers, block, start, trace)| {
                key.set(key.get() + 1);
                let store = Arc::clone(&both);
                let build = |limiter: RedisLimiterBuilder| limiter.build_on(store).unwrap();
                let key = Key::from(key.get());
                let pair = Pair::new(build, &both.clock, key, tiers, block, start);
                let mut pair = if spoils.is_some() { pair.spoil() } else { pair };
                let outcome = runtime.block_on(pair.agree(&trace));
                if let Some(difference) = both.difference.lock().unwrap().take() {
                    return Err(TestCaseError::fail(difference));
                }
                outcome
            });
        if let Err(error) = outcome {
            panic!("{error}");
        }
    }
    let foreign = both.foreign.load(Ordering::Relaxed);
    eprintln!(
        "{} calls agreed, {foreign} of them on foreign values",
        both.calls.load(Ordering::Relaxed)
    );
}

#[test]
fn of_values_that_limiters_wrote() {
    needs!(redis);
    agreement(20_000, None);
}

#[test]
fn of_values_that_somebody_spoiled() {
    needs!(redis);
    agreement(20_000, Some(7));
}
