//! A simulation of clients and other callers in virtual time: whatever clients report, and whenever messages arrive, all
//! together pass at most the limit and the terms of the module's page.
//!
//! A pass is late if the client's lease was over for the service: then a message was late. All other passes of a window
//! are at most its limit.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tower_ratelimit::{
    LocalStore,
    clock::{ManualClock, Timestamp},
    decision::Op,
};

use super::{
    simulation_bounds::{Bound, Kind},
    simulation_clients::Clients,
};
use crate::{
    decide::{BucketLimit, Charged, CountedLimit, Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::Entry,
    rlqs::{divided_rate::RowId, lease_accounts::Lending, simulation::random::Random},
};

pub(super) const STEP: Duration = Duration::from_millis(100);
pub(super) const TTL: Duration = Duration::from_secs(15);
const STEPS: u32 = 2_400;

/// The begin of a window of any period of the simulation.
const START: u64 = 1_200_000_000;

/// A design, and wrong ones that the bound has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Design {
    Right,
    /// The rest of a lease is refunded when another one replaces it, by the reports so far.
    Refunds,
    /// A lease is sent before its charge, which follows in a step.
    SendsFirst,
    /// A lease is not charged again in the next window.
    CountsOnce,
}

/// The result of one simulation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) passed: u64,
    pub(super) late: u64,
    /// The largest excess of a window over its bound.
    pub(super) beyond: u64,
}

/// The service: a limit of one subject.
struct World {
    limits: RateLimits,
    clock: ManualClock,
    limit: CountedLimit,
    lending: Lending,
    design: Design,
    /// Charges that follow their leases.
    owed: Vec<u64>,
}

impl World {
    fn new(kind: Kind, design: Design) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(START));
        let store = LocalStore::builder().clock(clock.clone()).build();
        let counters = Counters::local(&store.expect("a store"));
        let limits = RateLimits::new(counters, Modes::default());
        let rules = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{{}}}}}]",
            kind.rule()
        );
        let rules = Rules::builder().parse([("rules.yaml", rules)]);
        limits.set_rules(rules.expect("rules"));
        let pairs = [("k".to_owned(), "v".to_owned())].into();
        let Some(BucketLimit::Limited(limit)) = limits.bucket_limit("d", &pairs) else {
            panic!("no limit");
        };
        Self {
            lending: Lending::new(limit.counted.clone(), TTL),
            limits,
            clock,
            limit: limit.counted,
            design,
            owed: Vec::new(),
        }
    }

    fn charge(&self, op: &Op) -> Charged {
        let charge = self.limits.charge_units(&self.limit, op);
        ready(charge.expect("an operation")).expect("a count")
    }

    /// Requests of another caller. Returns the number that passes.
    fn take(&self, units: u64) -> u64 {
        (0..units)
            .map(|_| self.charge(&Op::AcquireUpTo(1)).units)
            .sum()
    }

    fn refund(&self, units: u64) {
        let entry = Entry {
            key: "k".to_owned(),
            value: "v".to_owned(),
        };
        let refund = self
            .limits
            .operate("d", vec![entry], Op::Refund(units, None));
        let count = ready(refund).expect("a count");
        assert!(count.is_some(), "the limit exists");
    }

    /// Runs a step of the worker.
    fn step(&mut self, now: Duration, clients: &mut Clients, random: &mut Random) {
        for units in std::mem::take(&mut self.owed) {
            self.charge(&Op::Count(units));
        }
        self.lending.advance(now);
        for (row, units) in self.lending.uncounted(now) {
            let charged = if self.design == Design::CountsOnce {
                self.charge(&Op::Peek(1))
            } else {
                self.charge(&Op::Count(units))
            };
            if let Some(message) = self.lending.counted((now, now), row, Some(charged)) {
                clients.send(now, row, message, random);
            }
        }
        for row in self.lending.in_need(now) {
            let found = self.charge(&Op::Peek(1));
            let amount = self.lending.amount(row, found);
            let message = if amount == 0 {
                self.lending.refuse(now, row, Some(found))
            } else {
                let charged = self.lend(row, amount, found, clients);
                self.lending.lend((now, now), row, Some(charged))
            };
            if let Some(message) = message {
                clients.send(now, row, message, random);
            }
        }
        for (row, message) in self.lending.answers(now) {
            clients.send(now, row, message, random);
        }
    }

    fn lend(&mut self, row: RowId, amount: u64, found: Charged, clients: &Clients) -> Charged {
        if self.design == Design::Refunds {
            self.refund(clients.unreported(row));
        }
        if self.design == Design::SendsFirst {
            self.owed.push(amount);
            return Charged {
                units: amount,
                ..found
            };
        }
        self.charge(&Op::AcquireUpTo(amount))
    }
}

/// The result of a future that is ready, since the counters are in this process.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a future that waits"),
    }
}

fn simulate(seed: u64, kind: Kind, design: Design) -> Outcome {
    let mut random = Random(seed);
    let mut world = World::new(kind, design);
    let mut clients = Clients::new(&mut random);
    let mut bound = Bound::new(kind);
    // Callers of `ShouldRateLimit` may come before the worker at the begin of a window.
    let others_are_first = random.one_in(2);
    let others = [0, 0, 1, 5][random.up_to(4) as usize];
    for step in 0..STEPS {
        let now = STEP * step;
        bound.begin(step, clients.lent(now));
        clients.send_reports(now, &mut random);
        for (row, report) in clients.arrived(now) {
            match report {
                Some((allowed, denied)) => world.lending.report(now, row, allowed, denied),
                None => world.lending.leave(row),
            }
        }
        let mut passed = 0;
        if others_are_first {
            passed += world.take(random.up_to(others + 1));
            bound.precede(passed);
        }
        world.step(now, &mut clients, &mut random);
        if !others_are_first {
            passed += world.take(random.up_to(others + 1));
        }
        clients.receive(now);
        let (timely, late) = clients.pass(now, &mut random);
        bound.pass(passed + timely, late);
        world.clock.advance(STEP);
    }
    bound.outcome()
}

fn seeds() -> u64 {
    let seeds = std::env::var("RLQS_SEEDS").ok();
    seeds.map_or(40, |seeds| seeds.parse().expect("a number"))
}

/// `RLQS_SEEDS=10000` runs more.
#[test]
fn no_window_is_above_the_bound() {
    for kind in Kind::ALL {
        let (mut sum, mut timely) = (Outcome::default(), 0);
        for seed in 0..seeds() {
            let outcome = simulate(seed, kind, Design::Right);
            assert_eq!(outcome.beyond, 0, "{kind:?}, seed {seed}: {outcome:?}");
            let delays = Clients::new(&mut Random(seed)).are_timely();
            assert!(!delays || outcome.late == 0, "{kind:?}, seed {seed}");
            timely += u64::from(delays);
            sum.passed += outcome.passed;
            sum.late += outcome.late;
        }
        println!(
            "{kind:?}: {timely} of {} seeds are timely; {sum:?}",
            seeds()
        );
        assert!(timely > 0, "timely messages are simulated");
        assert!(sum.late > 0, "late messages are simulated");
        assert!(sum.passed > 100 * seeds(), "units are used");
    }
}

#[test]
fn wrong_designs_are_above_the_bound() {
    for design in [Design::Refunds, Design::SendsFirst, Design::CountsOnce] {
        let found = (0..1_000).find(|seed| simulate(*seed, Kind::Window, design).beyond > 0);
        println!("{design:?}: seed {found:?}");
        assert!(found.is_some(), "{design:?}");
    }
}
