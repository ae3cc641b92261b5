//! Random limiters and the operations on them: tiers that count alike and that do not, blocks, changes
//! of quota, receipts of whatever was decided before.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    Decision, Limiter as _, LocalLimiter, Priority,
    clock::ManualClock,
    decision::Receipt,
    limiter::{LocalLimiterBuilder, OnChange, Pending, Tier},
};

use super::{
    alice,
    expected_decision::Answer,
    operations_of_a_trace::Request,
    per_request_quota_model::{Row, row},
    random_quotas::{self, Move, Size, Spec, any_move, at, size},
    tiered_key_model::{Subject, nanos},
};

/// In a list each quota needs a name of its own.
const NAMES: [&str; 3] = ["first", "second", "third"];
const TIERS: [Tier; 3] = [Tier::DEFAULT, Tier::named("small"), Tier::named("large")];

/// The quotas of each tier, the default one first, and a block.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) tiers: Vec<Vec<Spec>>,
    pub(crate) block_for: Option<Duration>,
    pub(crate) on_change: OnChange,
}

impl Setup {
    /// The quota as such a limiter accepts it: one that blocks lets nobody owe units.
    fn accepted(&self, spec: Spec) -> Spec {
        match self.block_for {
            Some(_) => spec.with_debt(0),
            None => spec,
        }
    }

    /// With quotas that such a limiter accepts.
    pub(crate) fn with_accepted_quotas(mut self) -> Self {
        let tiers = self.tiers.iter();
        self.tiers = tiers
            .map(|list| list.iter().map(|spec| self.accepted(*spec)).collect())
            .collect();
        self
    }
}

/// A step of a trace: the clock moves, then something is done.
pub(crate) type Step = (Move, Act);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// An operation in one of the tiers, for a class with this share in percent. The receipt's number is one of those
    /// there are, counted back from the last.
    Request(usize, u8, Request),
    /// One by the quota of a row.
    RequestWith(Row, u8, Request),
    /// A change of one of the default tier's quotas.
    Change(usize, Change),
    /// The limiter is saved, and restored as by the next process.
    Restart,
}

/// The quota that another one becomes.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant, reason = "a box is not `Copy`")]
pub(crate) enum Change {
    /// One that counts like that of this tier at the same place.
    Alike(usize, Size),
    To(Spec),
    /// The first one.
    Back,
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0_u64..4, 4 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

/// The last receipts most of the time, and any of the others.
fn receipt() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0_usize..3, 2 => 0_usize..40]
}

fn block() -> impl Strategy<Value = Duration> {
    let nanos = prop_oneof![
        2 => Just(0),
        2 => 1_u64..10_000_000_000,
        1 => 1_u64..100_000_000_000_000,
        // A longer one is an error, see block_for.rs.
        1 => 1_u64..=1 << 59,
    ];
    nanos.prop_map(Duration::from_nanos)
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        10 => units().prop_map(Request::Acquire),
        5 => units().prop_map(Request::Reserve),
        2 => units().prop_map(Request::Deny),
        3 => units().prop_map(Request::AcquireUpTo),
        2 => units().prop_map(Request::Peek),
        4 => units().prop_map(Request::Hit),
        5 => units().prop_map(Request::Spend),
        5 => (units(), receipt()).prop_map(|(units, number)| Request::Settle(units, number)),
        5 => (units(), receipt()).prop_map(|(units, number)| Request::Refund(units, Some(number))),
        2 => units().prop_map(|units| Request::Refund(units, None)),
        1 => block().prop_map(Request::Block),
        1 => Just(Request::Reset),
    ]
}

/// Mostly critical requests.
fn share() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(100_u8), 2 => 1_u8..100, 2 => prop::sample::select(vec![50, 80, 90_u8])]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (any::<usize>(), size()).prop_map(|(tier, size)| Change::Alike(tier, size)),
        1 => random_quotas::spec().prop_map(Change::To),
        1 => Just(Change::Back),
    ]
}

/// Up to `longest` steps.
pub(crate) fn trace(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let act = prop_oneof![
        10 => (any::<usize>(), share(), request())
            .prop_map(|(tier, share, request)| Act::Request(tier, share, request)),
        4 => (row(), share(), request())
            .prop_map(|(row, share, request)| Act::RequestWith(row, share, request)),
        2 => (any::<usize>(), change()).prop_map(|(place, change)| Act::Change(place, change)),
        1 => Just(Act::Restart),
    ];
    prop::collection::vec((any_move(), act), 1..longest)
}

/// One tier of as many quotas.
pub(crate) fn one_tier(
    spec: impl Strategy<Value = Spec> + 'static,
    quotas: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Vec<Spec>>> {
    prop::collection::vec(spec, quotas).prop_map(|list| vec![list])
}

/// A quota of another tier: like one of the default tier, at the same place unless another is
/// named, or one of its own.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant, reason = "a box is not `Copy`")]
enum Listed {
    Like(Option<usize>, Size),
    Own(Spec),
}

/// Two or three tiers, many of whose quotas count like those of the default tier, at the same place
/// or at another.
pub(crate) fn tiers() -> impl Strategy<Value = Vec<Vec<Spec>>> {
    let place = prop_oneof![4 => Just(None), 1 => (0_usize..3).prop_map(Some)];
    let own = prop_oneof![
        2 => (place, size()).prop_map(|(place, size)| Listed::Like(place, size)),
        1 => random_quotas::spec().prop_map(Listed::Own),
    ];
    let others = prop::collection::vec(prop::collection::vec(own, 1..4), 1..3);
    (prop::collection::vec(random_quotas::spec(), 1..4), others).prop_map(|(default, others)| {
        let mut tiers = vec![default.clone()];
        for list in others {
            let spec = |(here, listed): (usize, Listed)| match listed {
                Listed::Like(place, size) => {
                    default[place.unwrap_or(here) % default.len()].resized(size)
                }
                Listed::Own(spec) => spec,
            };
            tiers.push(list.into_iter().enumerate().map(spec).collect());
        }
        tiers
    })
}

fn builder(setup: &Setup, clock: &ManualClock) -> LocalLimiterBuilder {
    let named = |list: &Vec<Spec>| -> Vec<_> {
        let specs = list.iter().zip(NAMES);
        specs.map(|(spec, name)| spec.quota.named(name)).collect()
    };
    let mut builder = LocalLimiter::builder(named(&setup.tiers[0]))
        // Counts of former quotas take room, too.
        .max_keys(64)
        .on_change(setup.on_change)
        .clock(clock.clone());
    for (list, name) in setup.tiers[1..].iter().zip(["small", "large"]) {
        builder = builder.tier(name, named(list));
    }
    if let Some(block) = setup.block_for {
        builder = builder.block_for(block);
    }
    builder
}

/// The limiter of the next process, with the quotas in force.
fn restarted(
    limiter: &LocalLimiter,
    setup: &Setup,
    tiers: &[Vec<Spec>],
    clock: &ManualClock,
) -> LocalLimiter {
    let mut state = Vec::new();
    let saved = limiter.save(&mut state).expect("a save to memory");
    assert_eq!(saved.bytes(), state.len() as u64);
    let setup = Setup {
        tiers: tiers.to_vec(),
        ..setup.clone()
    };
    let restored = builder(&setup, clock).restore(state.as_slice());
    restored.expect("the state of this limiter")
}

/// The receipt that is meant, of as many.
pub(crate) fn with_receipt(request: Request, receipts: usize) -> Request {
    let number = |back: usize| receipts - 1 - back % receipts;
    match request {
        Request::Settle(units, _) if receipts == 0 => Request::Acquire(units),
        Request::Settle(units, back) => Request::Settle(units, number(back)),
        Request::Refund(units, Some(_)) if receipts == 0 => Request::Refund(units, None),
        Request::Refund(units, Some(back)) => Request::Refund(units, Some(number(back))),
        request => request,
    }
}

/// Runs a trace through a limiter and the oracle.
pub(crate) fn agrees(setup: &Setup, start: u64, trace: Vec<Step>) -> Result<(), TestCaseError> {
    let clock = ManualClock::at(at(start));
    let mut limiter = builder(setup, &clock).build().expect("good quotas");
    let mut oracle = Subject::new(&setup.tiers, setup.block_for, setup.on_change);
    let mut receipts = Vec::new();
    let mut now = start;
    // States that are fresh are not saved, and a clock that then steps back would find them missing.
    let mut restarted_at = 0;
    for (step, act) in trace {
        let specs = oracle.specs().iter().flatten();
        let mut marks: Vec<_> = specs.flat_map(Spec::marks).collect();
        marks.extend(setup.block_for.map(|block| block.as_micros() as u64));
        now = step.next_to(now, start, &marks).max(restarted_at);
        clock.set(at(now));
        match act {
            Act::Restart => {
                limiter = restarted(&limiter, setup, oracle.specs(), &clock);
                oracle.restart();
                restarted_at = now;
                receipts.clear();
            }
            Act::Change(place, change) => {
                let place = place % oracle.specs()[0].len();
                let spec = match change {
                    Change::Back => setup.tiers[0][place],
                    Change::To(spec) => spec,
                    Change::Alike(tier, size) => alike(oracle.specs(), tier, place, size),
                };
                let spec = setup.accepted(spec);
                oracle.set_quota(nanos(now), place, spec);
                let set = limiter.set_quota(NAMES[place], spec.quota);
                prop_assert!(set.is_ok(), "{set:?}");
            }
            Act::RequestWith(row, share, request) => {
                let request = with_receipt(request, receipts.len());
                if !is_known(&oracle, request) {
                    let op = request.op(&receipts);
                    let Pending::Ready(refused) =
                        testkit::apply_in(&limiter, &row.tier(), &alice(), op);
                    prop_assert!(refused.is_err(), "{:?}", request);
                    continue;
                }
                let expected = oracle.request_with(nanos(now), row, (share, request));
                let Pending::Ready(decision) = testkit::apply_in_class(
                    &limiter,
                    (&row.tier(), of_share(share)),
                    &alice(),
                    request.op(&receipts),
                );
                let Some(expected) = expected else {
                    prop_assert!(decision.is_err(), "{:?} in place of several", row);
                    continue;
                };
                let decision = decision.expect("there is one quota");
                receipts.push(decision.receipt());
                prop_assert_eq!(decision.decided_at(), at(now));
                let found = Answer::from(&decision);
                prop_assert_eq!(
                    found,
                    expected,
                    "{:?} by {:?}, {} %, at {}",
                    request,
                    row,
                    share,
                    now
                );
            }
            Act::Request(tier, share, request) => {
                let tier = tier % setup.tiers.len();
                let request = with_receipt(request, receipts.len());
                if !is_known(&oracle, request) {
                    let op = request.op(&receipts);
                    prop_assert!(!limiter.facts().supports(&op));
                    let Pending::Ready(refused) =
                        testkit::apply_in(&limiter, &TIERS[tier], &alice(), op);
                    prop_assert!(refused.is_err(), "{:?}", request);
                    continue;
                }
                let expected = oracle.request(nanos(now), tier, (share, request));
                let decision = decide(
                    &limiter,
                    (&TIERS[tier], of_share(share)),
                    request,
                    &receipts,
                );
                receipts.push(decision.receipt());
                prop_assert_eq!(decision.decided_at(), at(now));
                let found = Answer::from(&decision);
                prop_assert_eq!(
                    found,
                    expected,
                    "{:?} in tier {}, {} %, at {}",
                    request,
                    tier,
                    share,
                    now
                );
            }
        }
    }
    Ok(())
}

/// Whether the limiter can do the operation.
fn is_known(oracle: &Subject, request: Request) -> bool {
    !matches!(request, Request::Spend(_)) || oracle.can_spend()
}

fn of_share(share: u8) -> Priority {
    Priority::share(share).expect("a share")
}

fn alike(tiers: &[Vec<Spec>], tier: usize, place: usize, size: Size) -> Spec {
    let like = tiers[tier % tiers.len()].get(place);
    like.unwrap_or(&tiers[0][place]).resized(size)
}

fn decide(
    limiter: &LocalLimiter,
    in_class: (&Tier, Priority),
    request: Request,
    receipts: &[Receipt],
) -> Decision {
    let op = request.op(receipts);
    let Pending::Ready(decision) = testkit::apply_in_class(limiter, in_class, &alice(), op);
    decision.expect("there is such a tier")
}
