//! Random tiers, and random traces of the operations on them.

use std::{ops::RangeInclusive, time::Duration};

use proptest::prelude::*;
use testkit::oracle::{
    calendar_windows::before_transitions,
    random_quotas::{Move, Spec, debt},
};
use tower_ratelimit::{Quota, decision::Receipt, limiter::RequestQuota, quota::Algorithm};

/// The last microsecond that leaves room for the longest refill below 2^53.
pub(crate) const LATEST: u64 = 6_000_000_000_000_000;

/// The quotas of each tier. The first one is the default.
pub(crate) type Tiers = Vec<Vec<Spec>>;

/// A move of the clock, and the operation after it.
pub(crate) type Step = (Move, Action);

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Operations sent at one time, without waiting for each other's answers.
    Burst(Vec<Request>),
    /// Units taken one by one, until the wanted number is reached: all but the last one that was charged are
    /// finished.
    FillAndFinish(usize, u8, Finish),
    /// The oldest request that is open is finished and another one begun, again and again.
    FinishAndBegin(usize, u8, Finish),
    /// Another quota at a place of the default tier.
    SetQuota(usize, Box<Change>),
}

/// How a request is finished.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Finish {
    Refund,
    /// At as many units.
    Settle(u64),
}

/// An operation in a tier.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) tier: usize,
    /// The quota that the request brings, in place of a tier.
    pub(crate) row: Option<RequestQuota>,
    /// The share of the request's class in percent.
    pub(crate) share: u8,
    pub(crate) kind: Kind,
    pub(crate) units: u64,
    pub(crate) held: Held,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Acquire,
    Reserve,
    Deny,
    AcquireUpTo,
    Peek,
    Hit,
    Spend,
    Count,
    Settle,
    Refund,
    Block,
    Reset,
}

/// The receipt that is presented: of one of the decisions before, of none, or of a time at which
/// nothing may have happened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    None,
    Earlier(usize),
    Of(u64),
}

#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant, reason = "a box is not `Copy`")]
pub(crate) enum Change {
    /// Only the numbers change.
    Numbers(Numbers),
    /// Into one that counts like that of this tier, if it has one at the place.
    LikeTier(usize, Numbers),
    /// Into another one.
    To(Spec),
}

/// Numbers that may differ between quotas of one counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    limit: u64,
    room: u64,
    soft: u32,
    debt: u64,
}

impl Numbers {
    /// A quota that counts like `spec`.
    pub(crate) fn of(self, spec: &Spec) -> Spec {
        let period = spec.quota.period();
        let most = u64::try_from(period.as_micros()).expect("short");
        let quota = Quota::per(self.limit.min(most), period);
        let quota = match (spec.quota.algorithm(), spec.extras.refill_every) {
            (Algorithm::TokenBucket, None) => quota.burst(1 + self.room),
            (Algorithm::TokenBucket, Some(step)) => {
                let step = u64::try_from(step).expect("short");
                (quota.burst(1 + self.room)).refill_every(Duration::from_nanos(step))
            }
            (Algorithm::LeakyBucket { .. }, _) => quota.leaky_bucket(self.room),
            (Algorithm::FixedWindow, _) if spec.quota == spec.quota.uncapped() => {
                quota.fixed_window().uncapped()
            }
            (Algorithm::FixedWindow, _) => match spec.extras.civil {
                Some(civil) => civil.quota(quota.limit()),
                None => quota.fixed_window(),
            },
            (Algorithm::SlidingWindow, _) => quota.sliding_window().slices(spec.extras.slices),
            _ => quota.sliding_log(),
        };
        let soft = quota.soft(self.soft);
        let (quota, percent) = match soft.check() {
            Ok(()) => (soft, self.soft),
            Err(_) => (quota, 0),
        };
        let mut spec = Spec { quota, ..*spec };
        spec.extras.soft_percent = percent;
        spec.extras.debt = 0;
        spec.with_debt(self.debt)
    }
}

fn numbers() -> impl Strategy<Value = Numbers> + Clone {
    let limit = prop_oneof![3 => 1_u64..6, 3 => 1_u64..30];
    let room = prop_oneof![2 => 0_u64..4, 2 => 0_u64..30];
    let soft = prop_oneof![5 => Just(0_u32), 1 => 1_u32..120];
    (limit, room, soft, debt()).prop_map(|(limit, room, soft, debt)| Numbers {
        limit,
        room,
        soft,
        debt,
    })
}

/// The default tier and one to three others, whose quotas mostly count like the default one's.
pub(crate) fn tiers(
    specs: impl Strategy<Value = Spec> + Clone + 'static,
) -> impl Strategy<Value = Tiers> {
    let sibling = (prop::bool::weighted(0.7), numbers(), specs.clone());
    let other = prop::collection::vec(sibling, 1..4);
    let default = prop_oneof![
        3 => prop::collection::vec(specs.clone(), 1..2),
        2 => prop::collection::vec(specs, 2..4),
    ];
    (default, prop::collection::vec(other, 1..4)).prop_map(|(default, others)| {
        let tier = |other: Vec<(bool, Numbers, Spec)>| {
            let quotas = other.into_iter().enumerate();
            let quotas = quotas.map(|(at, (alike, numbers, spec))| match default.get(at) {
                Some(like) if alike => numbers.of(like),
                _ => spec,
            });
            quotas.collect()
        };
        let others: Vec<Vec<Spec>> = others.into_iter().map(tier).collect();
        std::iter::once(default).chain(others).collect()
    })
}

/// The default tier, and so many others whose quotas count like its own.
pub(crate) fn alike_tiers(
    default: impl Strategy<Value = Vec<Spec>>,
    others: RangeInclusive<usize>,
) -> impl Strategy<Value = Tiers> {
    let others = prop::collection::vec(prop::array::uniform2(numbers()), others);
    (default, others).prop_map(|(default, others)| {
        let tier = |numbers: [Numbers; 2]| {
            let quotas = default.iter().zip(numbers);
            quotas.map(|(like, numbers)| numbers.of(like)).collect()
        };
        let others: Vec<Vec<Spec>> = others.into_iter().map(tier).collect();
        std::iter::once(default).chain(others).collect()
    })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let units = prop_oneof![
        4 => 0_u64..4, 3 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)
    ];
    let kind = prop_oneof![
        6 => Just(Kind::Acquire),
        4 => Just(Kind::Reserve),
        2 => Just(Kind::Deny),
        2 => Just(Kind::AcquireUpTo),
        1 => Just(Kind::Peek),
        2 => Just(Kind::Hit),
        3 => Just(Kind::Spend),
        2 => Just(Kind::Count),
        4 => Just(Kind::Settle),
        4 => Just(Kind::Refund),
        1 => Just(Kind::Block),
        1 => Just(Kind::Reset),
    ];
    let held = prop_oneof![
        2 => Just(Held::None),
        6 => any::<usize>().prop_map(Held::Earlier),
        1 => (0..LATEST).prop_map(Held::Of),
    ];
    let tier = (any::<usize>(), prop::option::weighted(0.3, row()), share());
    (tier, kind, units, held).prop_map(|((tier, row, share), kind, units, held)| Request {
        tier,
        row,
        share,
        kind,
        units,
        held,
    })
}

/// Mostly critical requests, which the specialized scripts decide.
fn share() -> impl Strategy<Value = u8> {
    prop_oneof![8 => Just(100_u8), 1 => 1_u8..100, 2 => prop::sample::select(vec![50, 80, 90_u8])]
}

fn row() -> impl Strategy<Value = RequestQuota> {
    let number =
        || prop_oneof![6 => 0_u64..6, 6 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (number(), prop::option::of((any::<bool>(), number()))).prop_map(|(limit, room)| {
        let quota = RequestQuota::limit(limit);
        match room {
            Some((true, burst)) => quota.burst(burst),
            Some((false, queue)) => quota.queue(queue),
            None => quota,
        }
    })
}

pub(crate) fn trace(
    moves: impl Strategy<Value = Move> + 'static,
) -> impl Strategy<Value = Vec<Step>> {
    let finish = || {
        prop_oneof![
            2 => Just(Finish::Refund),
            2 => Just(Finish::Settle(0)),
            2 => (1_u64..4).prop_map(Finish::Settle),
        ]
    };
    let change = prop_oneof![
        4 => numbers().prop_map(Change::Numbers),
        1 => (any::<usize>(), numbers()).prop_map(|(tier, n)| Change::LikeTier(tier, n)),
        1 => super::any_spec().prop_map(Change::To),
    ];
    let action = prop_oneof![
        9 => prop::collection::vec(request(), 1..2).prop_map(Action::Burst),
        3 => prop::collection::vec(request(), 2..6).prop_map(Action::Burst),
        // Alike in a row, which the script gets once.
        3 => (request(), 2_usize..20).prop_map(|(request, times)| Action::Burst(vec![request; times])),
        2 => (any::<usize>(), 1_u8..30, finish())
            .prop_map(|(tier, times, finish)| Action::FillAndFinish(tier, times, finish)),
        2 => (any::<usize>(), 1_u8..8, finish())
            .prop_map(|(tier, times, finish)| Action::FinishAndBegin(tier, times, finish)),
        1 => (any::<usize>(), change).prop_map(|(at, change)| Action::SetQuota(at, Box::new(change))),
    ];
    prop::collection::vec((moves, action), 1..14)
}

pub(crate) fn start() -> impl Strategy<Value = u64> {
    let last = LATEST - (1 << 60) / 1_000;
    let transitions = prop::sample::select(before_transitions());
    prop_oneof![
        1 => Just(0),
        1 => Just(1_767_225_612_345_678),
        1 => Just(last),
        1 => 0..=last,
        2 => transitions,
    ]
}

pub(crate) fn block() -> impl Strategy<Value = Option<Duration>> {
    let micros = prop_oneof![1_u64..5_000_000, 1_u64..100_000_000_000];
    prop::option::weighted(0.4, micros.prop_map(Duration::from_micros))
}

impl Held {
    pub(crate) fn receipt(
        self,
        earlier: &[Receipt],
        of: impl Fn(u64) -> Receipt,
    ) -> Option<Receipt> {
        match self {
            Self::Earlier(n) if !earlier.is_empty() => Some(earlier[n % earlier.len()].clone()),
            Self::Of(micros) => Some(of(micros)),
            _ => None,
        }
    }
}
