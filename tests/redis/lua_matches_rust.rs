//! The script and its twin in Rust give the same: decisions, answers to messages, and what a node shows later, in each number;
//! the value and its lifetime to the byte.
//!
//! Also of lease clauses, that come in and out of order, once and twice.
//!
//! In CI some thousand calls a test. `DIFFERENTIAL_OPERATIONS` sets another number for each test.

mod simulated_lease_holders;

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use proptest::{prelude::*, test_runner::TestRunner};
use testkit::{needs, oracle::random_quotas::at, servers::Server};
use tower_ratelimit::{
    Key, Priority, Quota,
    clock::{Clock, ManualClock},
    decision::Op,
    limiter::Tier,
    shared::{
        Applied, NodeReply, RedisLimiterBuilder, Reply, SharedLimiter, Store, StoreCall, Write,
    },
    store::{StoreError, StoreErrorKind},
};

use self::simulated_lease_holders::{Dice, Nodes};
use crate::{
    differential::{
        any_spec,
        pair::Pair,
        traces::{block, start, tiers, trace},
    },
    random_quotas::{Spec, any_move, uncapped},
    scripts::{
        GENERAL,
        script_write_recorder::{Calls, Recorded},
    },
};

/// Longer by so much lives a value that was written at the time of a test.
const HOUR: u64 = 3_600_000;

/// The milliseconds of three centuries.
const ENDLESS: u64 = 10_000_000_000_000;

/// Sends each call to both, and records where they differ.
struct Both {
    clock: ManualClock,
    script: Recorded,
    redis: Mutex<Calls>,
    /// A change of what counters there are moves a limiter to another key, and back.
    values: Mutex<HashMap<String, Vec<u8>>>,
    spoils: Option<Mutex<Spoiler>>,
    leases: Option<Mutex<Nodes>>,
    calls: AtomicU64,
    foreign: AtomicU64,
    difference: Mutex<Option<String>>,
}

/// Changes values as somebody else might.
struct Spoiler(Dice);

impl Spoiler {
    fn spoiled(&mut self, value: &[u8]) -> Option<Vec<u8>> {
        const MARKS: &[u8] = b"0123456789;:|!h&,\n-x";
        if value.is_empty() || self.0.below(4) > 0 {
            return None;
        }
        let mut value = value.to_vec();
        let at = self.0.below(value.len());
        let mark = |marks: &[u8]| value.iter().position(|byte| marks.contains(byte));
        let line = mark(b"\n").unwrap_or(value.len());
        let nodes = mark(b"&").filter(|nodes| *nodes < line);
        let state = ..mark(b";|!&").unwrap_or(0);
        match (self.0.below(10), nodes) {
            (0, _) => value.truncate(at),
            (1, _) => drop(value.remove(at)),
            (2, _) => value.insert(at, MARKS[self.0.below(MARKS.len())]),
            (3, _) => value.extend_from_within(at..),
            // Some blocks that could have been started, and some that nobody starts.
            (4, _) => value.extend_from_slice(
                [
                    b"!1767225612345678999h".as_slice(),
                    b"!9007199254740000000h",
                    b"!9007199254740000000",
                ][self.0.below(3)],
            ),
            (5, _) => value.splice(..at, []).for_each(drop),
            // A number about rows that begins with a zero.
            (6, Some(nodes)) => {
                let marks = (nodes..line).filter(|at| !value[*at].is_ascii_digit());
                let marks: Vec<_> = marks.collect();
                value.insert(marks[self.0.below(marks.len())] + 1, b'0');
            }
            // Unused, and the first row ended when time began.
            (7, Some(_)) if line + 28 < value.len() => {
                value[line + 22..=line + 28].fill(0);
                value.splice(state, *b"0").for_each(drop);
            }
            _ => value[at] = MARKS[self.0.below(MARKS.len())],
        }
        Some(value).filter(|value| has_plain_numbers(value))
    }
}

/// The latest instant that Lua distinguishes from the next.
const LATEST_NANOS: u64 = ((1 << 53) - 1) * 1_000;

/// Whether no number is too large for Lua to count exactly, or of those before the rows' begins with a zero that is not its
/// own: the script may keep such a text of a bucket as it is.
fn has_plain_numbers(value: &[u8]) -> bool {
    let head = value.split(|byte| *byte == b'\n').next().unwrap_or(value);
    let own = head.split(|byte| *byte == b'&').next().unwrap_or(head);
    let numbers = |text: &[u8], is_plain: fn(&str) -> bool| {
        let mut numbers = text.split(|byte| !byte.is_ascii_digit());
        numbers
            .all(|number| matches!(number, b"" | b"0") || is_plain(str::from_utf8(number).unwrap()))
    };
    let is_exact = |number: &str| {
        number
            .parse()
            .is_ok_and(|number: u64| number <= LATEST_NANOS)
    };
    numbers(head, is_exact) && numbers(own, |number| !number.starts_with('0'))
}

impl Both {
    fn new(server: &Server, spoils: Option<u64>, leases: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            clock: ManualClock::new(),
            script: Recorded::new(GENERAL),
            redis: Mutex::new(Calls::new(server)),
            values: Mutex::default(),
            spoils: spoils.map(|seed| Mutex::new(Spoiler(Dice(seed)))),
            leases: leases.map(|seed| Mutex::new(Nodes::new(seed))),
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

/// The write as [`Recorded`] returns it.
fn written(write: &Write) -> Vec<u8> {
    let lifetime = u64::try_from(write.expires_in.as_millis()).unwrap() + HOUR;
    let mut written = write.value.clone();
    written.extend_from_slice(format!(" {lifetime}").as_bytes());
    written
}

impl Both {
    /// Calls both, and returns the reply.
    fn request(&self, key: &str, call: &StoreCall<'_>) -> Result<Vec<u8>, StoreError> {
        let call = &call.with_states();
        self.calls.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        let before = self.before(key);
        let arguments = call.script_arguments(Some(now));
        let reported = {
            let mut redis = self.redis.lock().unwrap();
            redis.call(&self.script, &[key.to_owned()], &arguments)
        };
        let (reply, write) = (reported.replies[0].clone(), reported.writes[0].clone());
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
                let own = call.explained(own).unwrap();
                let told = call.explained(Reply::from_bytes(reply.clone()));
                self.check(told.as_ref().ok() == Some(&own), || {
                    let numbers = numbers(&reply);
                    format!("{}:\n{own:#?}\nand\n{told:#?} of {numbers}", of_the_call())
                });
                self.check(is_same(own_write.as_ref(), write.as_deref()), || {
                    let own = own_write.as_ref().map(written);
                    let [own, write] = [own, write.clone()]
                        .map(|bytes| bytes.map(|bytes| bytes.escape_ascii().to_string()));
                    format!("{}:\n{own:?}\nand\n{write:?}", of_the_call())
                });
                if let Some(write) = own_write {
                    self.keep(key, Some(write.value));
                }
                Ok(reply)
            }
            Err(error) => {
                self.foreign.fetch_add(1, Ordering::Relaxed);
                assert_eq!(error.kind(), StoreErrorKind::ForeignData);
                // The script reads the entries of a log only as far as it has to.
                let has_log = arguments.iter().any(|argument| argument == "g");
                let is_foreign = reply.starts_with(b"-RATELIMIT");
                self.check(is_foreign || has_log, || {
                    format!("{}: foreign", of_the_call())
                });
                self.keep(key, None);
                Err(error)
            }
        }
    }

    /// Calls both with a clause of one of the nodes. The part of the reply that is about the
    /// operations.
    fn request_leased(
        &self,
        key: &str,
        call: &StoreCall<'_>,
        nodes: &mut Nodes,
    ) -> Result<Vec<u8>, StoreError> {
        let (node, clause) = nodes.clause(key);
        let mut reply = self.request(key, &call.with_message(&clause))?;
        let answer = NodeReply::split(&reply);
        let Some((ops, lease)) = answer else {
            self.check(false, || format!("no answer to {clause:?}"));
            return Ok(reply);
        };
        nodes.learn(key, node, &clause, &lease);
        reply.truncate(ops.len());
        Ok(reply)
    }
}

/// The whole numbers of a reply.
fn numbers(reply: &[u8]) -> String {
    if reply.starts_with(b"-") {
        return reply.escape_ascii().to_string();
    }
    let numbers = reply.chunks(8).map(|number| {
        let number = number.iter();
        number.fold(0, |sum, byte| sum << 8 | i64::from(*byte))
    });
    format!("{:?}", numbers.collect::<Vec<_>>())
}

/// Whether both wrote the same, for the same time.
fn is_same(own: Option<&Write>, write: Option<&[u8]>) -> bool {
    let own = own.map(written);
    let is_endless = |written: &[u8]| {
        let lifetime = written.rsplit(|byte| *byte == b' ').next()?;
        Some(str::from_utf8(lifetime).ok()?.parse::<u64>().ok()? > ENDLESS)
    };
    let (Some(one), Some(two)) = (&own, write) else {
        return own.is_none() && write.is_none();
    };
    // Somebody else's number may be of a time without a number of either.
    if [one, two].map(is_endless) == [Some(true); 2] {
        let value = |written: &[u8]| {
            let space = written.iter().rposition(|byte| *byte == b' ');
            written[..space.unwrap()].to_vec()
        };
        return value(one) == value(two);
    }
    one == two
}

impl Store for Both {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        let Some(nodes) = &self.leases else {
            return self.request(key, call).map(Reply::from_bytes);
        };
        let mut nodes = nodes.lock().unwrap();
        while nodes.speak_alone() {
            // The call itself fails on a foreign value.
            self.request_leased(key, &call.without_ops(), &mut nodes)
                .ok();
        }
        let reply = if nodes.speak() {
            self.request_leased(key, call, &mut nodes)?
        } else {
            self.request(key, call)?
        };
        Ok(Reply::from_bytes(reply))
    }
}

/// Runs traces until as many calls were compared.
fn agreement(
    specs: impl Strategy<Value = Spec> + Clone + 'static,
    calls: u64,
    spoils: Option<u64>,
    leases: Option<u64>,
) {
    let runtime = super::scripts::runtime();
    let wanted = std::env::var("DIFFERENTIAL_OPERATIONS");
    let wanted = wanted.map_or(calls, |n| n.parse().expect("a number"));
    let server = runtime.block_on(Server::start());
    let both = Both::new(&server, spoils, leases);
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 4_000,
        cases: 32,
        ..ProptestConfig::default()
    };
    let key = Cell::new(0_u64);
    let inputs = (tiers(specs), block(), start(), trace(any_move()));
    while both.calls.load(Ordering::Relaxed) < wanted {
        let outcome =
            TestRunner::new(config.clone()).run(&inputs, |(tiers, block, start, trace)| {
                key.set(key.get() + 1);
                let store = Arc::clone(&both);
                let build = |limiter: RedisLimiterBuilder| {
                    // As limiters are whose nodes spend before they call.
                    let is_ahead = leases.is_some() && key.get().is_multiple_of(2);
                    let limiter = if is_ahead { limiter.debt() } else { limiter };
                    limiter.build_on(store).unwrap()
                };
                let key = Key::from(key.get());
                let pair = Pair::new(build, &both.clock, key, tiers, block, start);
                let is_other = spoils.is_some() || leases.is_some();
                let mut pair = if is_other { pair.spoil() } else { pair };
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
        "{} calls agreed, {foreign} of them on foreign values; {}",
        both.calls.load(Ordering::Relaxed),
        both.leases
            .as_ref()
            .map_or_else(String::new, |nodes| nodes.lock().unwrap().tally()),
    );
}

#[test]
fn of_values_that_limiters_wrote() {
    needs!(redis);
    agreement(any_spec(), 2_000, None, None);
}

#[test]
fn of_values_that_somebody_spoiled() {
    needs!(redis);
    agreement(any_spec(), 2_000, Some(7), None);
}

#[test]
fn of_values_with_messages() {
    needs!(redis);
    agreement(any_spec(), 2_000, None, Some(7));
}

#[test]
fn of_values_with_messages_that_somebody_spoiled() {
    needs!(redis);
    agreement(any_spec(), 2_000, Some(7), Some(11));
}

#[test]
fn of_windows_that_count_on() {
    needs!(redis);
    agreement(uncapped(), 1_000, None, None);
}

#[test]
fn of_windows_that_count_on_with_messages_that_somebody_spoiled() {
    needs!(redis);
    agreement(uncapped(), 1_000, Some(7), Some(11));
}

/// A bucket of ten a second without a charge; and a row that reserves four units, with this text about it and this end.
fn of_a_row(about: &str, end: u64) {
    let runtime = super::scripts::runtime();
    let server = runtime.block_on(Server::start());
    let both = Both::new(&server, None, None);
    both.clock.set(at(1_767_225_612_345_678));
    let limiter = SharedLimiter::builder(Quota::per_second(10)).build_on(Arc::clone(&both));
    let (limiter, key) = (limiter.unwrap(), Key::from(1));
    let call = |op| {
        let tier = (&Tier::DEFAULT, Priority::CRITICAL);
        runtime
            .block_on(async { testkit::apply_in_class(&limiter, tier, &key, op).await })
            .unwrap();
    };
    call(Op::Acquire(1));
    let mut row = b"neighbor\0\0\0\x03\x01\0\0\0\x04\0\0\0\x04".to_vec();
    row.extend_from_slice(&end.to_be_bytes()[1..]);
    let value = [format!("0&4;{about}\n").as_bytes(), &row].concat();
    for (key, before) in both.values.lock().unwrap().iter_mut() {
        both.redis.lock().unwrap().set(key, &value);
        before.clone_from(&value);
    }
    call(Op::Peek(1));
    assert_eq!(both.difference.lock().unwrap().take(), None);
    assert_eq!(both.foreign.load(Ordering::Relaxed), 0);
}

#[test]
fn of_a_row_whose_interval_begins_with_a_zero() {
    needs!(redis);
    of_a_row("1:4:0100000000", 1_767_225_620_000_000);
}

#[test]
fn of_a_row_that_ended_when_time_began() {
    needs!(redis);
    of_a_row("1:4:100000000", 0);
}
