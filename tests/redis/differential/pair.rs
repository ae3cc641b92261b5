//! A limiter in Redis and a local one, of the same quotas, by the same clock.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use testkit::oracle::random_quotas::{Spec, at};
use tower_ratelimit::{
    Decision, Key, Limiter, LimiterError, LocalLimiter, OnFailure, Priority, Quota, RedisLimiter,
    clock::ManualClock,
    decision::{Op, Policy, QuotaStatus, Receipt},
    limiter::Tier,
    shared::{RedisLimiterBuilder, SharedLimiter, StoreBackend},
};

use super::traces::{Action, Change, Finish, Kind, LATEST, Request, Step, Tiers};

const NAMES: [&str; 3] = ["first", "second", "third"];
/// A tier, and the class of a request.
type InClass = (Tier, Priority);

const fn critical(tier: Tier) -> InClass {
    (tier, Priority::CRITICAL)
}

const TIERS: [Tier; 4] = [
    Tier::DEFAULT,
    Tier::named("a"),
    Tier::named("b"),
    Tier::named("c"),
];
const TIER_NAMES: [&str; 4] = ["", "a", "b", "c"];

/// A limiter whose quotas can be changed.
pub(crate) trait Changing: Limiter {
    fn change(&self, name: &str, quota: Quota);
}

impl<S: StoreBackend> Changing for SharedLimiter<S> {
    fn change(&self, name: &str, quota: Quota) {
        self.set_quota(name, quota).expect("a good quota");
    }
}

pub(crate) struct Pair<L> {
    redis: L,
    /// Whether the value may be spoiled, so that it is not what the local limiter counts.
    is_spoiled: bool,
    /// A change of what counters there are moves the limiter in Redis to another key, and back: for
    /// each of them one that counts what that key does.
    locals: HashMap<Vec<String>, LocalLimiter>,
    clock: ManualClock,
    key: Key,
    tiers: Tiers,
    block: Option<Duration>,
    start: u64,
    now: u64,
    receipts: Vec<Receipt>,
    open: Vec<Receipt>,
    operations: u64,
}

impl<L: Changing> Pair<L> {
    pub(crate) fn new(
        build: impl FnOnce(RedisLimiterBuilder) -> L,
        clock: &ManualClock,
        key: Key,
        tiers: Tiers,
        block: Option<Duration>,
        start: u64,
    ) -> Self {
        let clock = clock.clone();
        clock.set(at(start));
        let accepted = |spec: Spec| accepted(spec, block);
        let tiers: Tiers = tiers
            .into_iter()
            .map(|tier| tier.into_iter().map(accepted).collect())
            .collect();
        let mut redis = RedisLimiter::builder(named(&tiers[0]))
            .name("differential")
            .remember_denials(false)
            .on_failure(OnFailure::deny())
            .test_clock(clock.clone());
        for (quotas, name) in tiers.iter().zip(TIER_NAMES).skip(1) {
            redis = redis.tier(name, named(quotas));
        }
        if let Some(block) = block {
            redis = redis.block_for(block);
        }
        Self {
            redis: build(redis),
            is_spoiled: false,
            locals: HashMap::new(),
            clock,
            key,
            tiers,
            block,
            start,
            now: start,
            receipts: Vec::new(),
            open: Vec::new(),
            operations: 0,
        }
    }

    /// From now on the answers are not compared with the local limiter's.
    pub(crate) fn spoil(mut self) -> Self {
        self.is_spoiled = true;
        self
    }

    /// How many operations were compared.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    pub(crate) async fn agree(&mut self, trace: &[Step]) -> Result<(), TestCaseError> {
        for (step, action) in trace {
            let specs = self.tiers.concat();
            self.now = step.from(self.now, self.start, &specs).min(LATEST);
            self.clock.set(at(self.now));
            match action {
                Action::Burst(requests) => {
                    let ops = requests
                        .iter()
                        .map(|request| (self.tier_of(request), self.op(request)));
                    let ops = ops.collect();
                    self.request(ops).await?;
                }
                Action::FillAndFinish(tier, times, finish) => {
                    let tier = critical(self.tier(*tier));
                    let all = vec![(tier.clone(), Op::Reserve(1)); usize::from(*times)];
                    self.begin(all).await?;
                    let last = self.open.pop();
                    let others = std::mem::take(&mut self.open);
                    self.open.extend(last);
                    let ops = others.into_iter();
                    let ops = ops.map(|open| (tier.clone(), finish.op(open)));
                    self.request(ops.collect()).await?;
                }
                Action::FinishAndBegin(tier, times, finish) => {
                    let tier = critical(self.tier(*tier));
                    for _ in 0..*times {
                        if !self.open.is_empty() {
                            let oldest = self.open.remove(0);
                            self.request(vec![(tier.clone(), finish.op(oldest))])
                                .await?;
                        }
                        self.begin(vec![(tier.clone(), Op::Reserve(1))]).await?;
                    }
                }
                Action::SetQuota(place, change) => {
                    self.set_quota(*place, change);
                    // Without locks the keys are cut to a new quota when it is set, in Redis when they
                    // are compared.
                    if self.tiers.len() == 1 {
                        self.request(vec![(critical(Tier::DEFAULT), Op::Peek(0))])
                            .await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn tier(&self, number: usize) -> Tier {
        TIERS[number % self.tiers.len()].clone()
    }

    fn tier_of(&self, request: &Request) -> InClass {
        let tier = (request.row).map_or_else(|| self.tier(request.tier), Tier::from);
        let share = Priority::share(request.share).expect("a share");
        (tier, share)
    }

    fn op(&self, request: &Request) -> Op {
        let units = request.units;
        let receipt = request.held.receipt(&self.receipts, of_a_stranger);
        match (request.kind, receipt) {
            (Kind::Acquire, _) => Op::Acquire(units),
            (Kind::Reserve, _) => Op::Reserve(units),
            (Kind::Deny, _) => Op::Deny(units),
            (Kind::AcquireUpTo, _) => Op::AcquireUpTo(units),
            (Kind::Hit, _) => Op::Hit(units),
            (Kind::Spend, _) => Op::Spend(units),
            (Kind::Count, _) => Op::Count(units),
            (Kind::Refund, receipt) => Op::Refund(units, receipt),
            (Kind::Settle, Some(receipt)) => Op::Settle(units, receipt),
            // A longer one than 2^59 nanoseconds is an error, and no decision.
            (Kind::Block, _) => {
                let micros = units.saturating_mul(units % 7).min((1 << 59) / 1_000);
                Op::Block(Duration::from_micros(micros))
            }
            (Kind::Reset, _) => Op::Reset,
            (Kind::Peek | Kind::Settle, _) => Op::Peek(units),
        }
    }

    /// Sends it, and keeps the charge open.
    async fn begin(&mut self, ops: Vec<(InClass, Op)>) -> Result<(), TestCaseError> {
        let before = self.receipts.len();
        self.request(ops).await?;
        let begun = self.receipts[before..].iter();
        let begun = begun.filter(|receipt| receipt.charged() > 0);
        self.open.extend(begun.cloned());
        Ok(())
    }

    /// Sends without waiting for each other's answers, as far as the order is defined: operations of
    /// different tiers that wait at the same time overtake each other, and one with a receipt is of
    /// the receipt's tier.
    async fn request(&mut self, ops: Vec<(InClass, Op)>) -> Result<(), TestCaseError> {
        let has_receipt = |op: &Op| matches!(op, Op::Refund(_, Some(_)) | Op::Settle(..));
        let together = |(one, first): &(InClass, Op), (two, next): &(InClass, Op)| {
            let alike = first == next;
            one == two && (alike || !has_receipt(first) && !has_receipt(next))
        };
        for burst in ops.chunk_by(together) {
            self.request_at_once(burst).await?;
        }
        Ok(())
    }

    async fn request_at_once(&mut self, requested: &[(InClass, Op)]) -> Result<(), TestCaseError> {
        let answers: Vec<_> = requested
            .iter()
            .map(|((tier, class), op)| {
                testkit::apply_in_class(&self.redis, (tier, *class), &self.key, op.clone())
            })
            .collect();
        let local = self.local();
        for ((tier, op), answer) in requested.iter().zip(answers) {
            self.operations += 1;
            let (own, class) = tier;
            let expected = testkit::apply_in_class(&local, (own, *class), &self.key, op.clone());
            let Ok(expected) = expected.await else {
                // A row takes the place of one quota, few quotas count on, and queues cannot spend.
                let is_refused =
                    self.tiers[0].len() > 1 || matches!(op, Op::Count(_) | Op::Spend(_));
                prop_assert!(is_refused, "{op:?} in {tier:?}");
                let decided = answer.await;
                prop_assert!(decided.is_err(), "{:?}", decided);
                continue;
            };
            if self.is_spoiled {
                let receipts = answer.await.ok().map(|decision| decision.receipt());
                self.receipts.extend(receipts);
                continue;
            }
            let decision = answer.await.map_err(|error| broken(&error))?;
            prop_assert_eq!(
                &decision,
                &expected,
                "{:?} in {:?} at {}",
                op,
                tier,
                self.now
            );
            let receipt = decision.receipt();
            prop_assert_eq!(&receipt, &expected.receipt(), "{:?} at {}", op, self.now);
            self.receipts.push(receipt);
        }
        Ok(())
    }

    fn set_quota(&mut self, place: usize, change: &Change) {
        let place = place % self.tiers[0].len();
        let like = |tier: usize| self.tiers[tier % self.tiers.len()].get(place);
        let changed = match change {
            Change::Numbers(numbers) => numbers.of(&self.tiers[0][place]),
            Change::LikeTier(tier, numbers) => {
                numbers.of(like(*tier).unwrap_or(&self.tiers[0][place]))
            }
            Change::To(spec) => *spec,
        };
        let changed = accepted(changed, self.block);
        self.tiers[0][place] = changed;
        self.redis.change(NAMES[place], changed.quota);
        let local = self.local();
        for (name, spec) in NAMES.iter().zip(&self.tiers[0]) {
            local.set_quota(name, spec.quota).expect("a good quota");
        }
    }

    /// The local limiter that counts what the key in Redis does.
    fn local(&mut self) -> LocalLimiter {
        let made = self.locals.entry(counters(&self.tiers));
        let (tiers, block, clock) = (&self.tiers, self.block, &self.clock);
        let made = made.or_insert_with(|| local_limiter(tiers, block, clock));
        made.clone()
    }
}

fn local_limiter(tiers: &Tiers, block: Option<Duration>, clock: &ManualClock) -> LocalLimiter {
    // Room for all states and the block, also for those that have ended: a clock that steps back finds them again in Redis.
    let mut local = LocalLimiter::builder(named(&tiers[0]))
        .max_keys(64)
        .clock(clock.clone());
    for (quotas, name) in tiers.iter().zip(TIER_NAMES).skip(1) {
        local = local.tier(name, named(quotas));
    }
    if let Some(block) = block {
        local = local.block_for(block);
    }
    local.build().expect("good quotas")
}

/// The quota as a limiter accepts it: one that blocks lets nobody owe units.
fn accepted(spec: Spec, block: Option<Duration>) -> Spec {
    match block {
        Some(_) => spec.with_debt(0),
        None => spec,
    }
}

fn named(specs: &[Spec]) -> Vec<Quota> {
    let named = specs.iter().zip(NAMES);
    named.map(|(spec, name)| spec.quota.named(name)).collect()
}

/// All that the tiers count, each once.
fn counters(tiers: &Tiers) -> Vec<String> {
    let quotas = tiers.iter().flat_map(|tier| tier.iter().enumerate());
    let counters = quotas.map(|(place, spec)| {
        let algorithm = std::mem::discriminant(&match spec.quota.algorithm() {
            tower_ratelimit::quota::Algorithm::LeakyBucket { .. } => {
                tower_ratelimit::quota::Algorithm::LeakyBucket { queue: 0 }
            }
            other => other,
        });
        let slices = spec.extras.slices.max(1);
        let (period, step) = (spec.quota.period(), spec.extras.refill_every);
        let civil = spec.extras.civil;
        format!("{place} {algorithm:?} {period:?} {slices} {step:?} {civil:?}")
    });
    let mut counters: Vec<_> = counters.collect();
    counters.sort();
    counters.dedup();
    counters
}

impl Finish {
    fn op(self, open: Receipt) -> Op {
        match self {
            Self::Refund => Op::Refund(open.charged(), Some(open)),
            Self::Settle(units) => Op::Settle(units, open),
        }
    }
}

/// The receipt of a limiter that is not this crate's.
pub(super) fn of_a_stranger(micros: u64) -> Receipt {
    let policy = Policy::new("stranger", 10);
    let status = QuotaStatus::new(&policy);
    Decision::allowed(micros % 5, at(micros), status).receipt()
}

pub(super) fn broken(error: &LimiterError) -> TestCaseError {
    TestCaseError::fail(format!("{error}: {:?}", std::error::Error::source(error)))
}
