//! Calls: operations on one subject, as a store is asked for them, and the arithmetic for stores that
//! only keep bytes.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    arguments::{Asking, Plan},
    lease::LeaseClause,
    leasing::Leasing,
    subject_value::SubjectValue,
};
use crate::{
    algorithm::{Beside, Counts as _, Verdict},
    clock::Timestamp,
    decision::{Measure, Op, Policy, Usage, WindowUsage},
    limiter::{
        apply::{Apply, Findings, OpOutcome, Subject},
        limits::{Chosen, Limits},
        quotas::Quotas,
    },
    redis::store::error::{StoreError, StoreErrorKind},
};

/// Operations on the value of one key, to be done in one step.
///
/// A [store](super::Store) that keeps bytes asks [`apply`](Self::apply) what to write.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    plan: &'a Plan,
    tier: Chosen,
    rows: &'a [(Op, usize)],
    lease: Option<&'a LeaseClause>,
}

/// A call that outlives its node's question.
#[doc(hidden)]
#[derive(Debug)]
pub struct LateCall {
    plan: Plan,
    tier: Chosen,
    rows: Vec<(Op, usize)>,
    lease: Option<LeaseClause>,
}

/// The answer to a [`Call`]: each operation's outcome, for the limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(Vec<u8>);

/// The outcome of [`Call::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The answer, once the value is written.
    pub reply: Reply,
    /// The new value; `None` if it stays as it is, as after a denial.
    pub write: Option<Write>,
}

/// A value for a store to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write {
    /// The bytes.
    pub value: Vec<u8>,
    /// After what time there is nothing left to remember: in whole milliseconds, at least one. A
    /// store may keep the value for longer.
    pub expires_in: Duration,
}

impl<'a> Call<'a> {
    pub(super) const fn new(plan: &'a Plan, tier: Chosen, rows: &'a [(Op, usize)]) -> Self {
        Self {
            plan,
            tier,
            rows,
            lease: None,
        }
    }

    /// What a node says about its lease with it, if anything.
    #[doc(hidden)]
    #[must_use]
    pub const fn lease(&self) -> Option<&'a LeaseClause> {
        self.lease
    }

    /// The same call, to be done when its node does not wait for it any more: for simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn to_late(&self) -> LateCall {
        LateCall {
            plan: Plan::new(self.plan.limits()),
            tier: self.tier,
            rows: self.rows.to_vec(),
            lease: self.lease.copied(),
        }
    }

    /// The same call with a lease clause: its reply ends with the answer to that, see
    /// [`LeaseReply::split`](super::lease::LeaseReply::split).
    #[doc(hidden)]
    #[must_use]
    pub const fn with_lease(self, lease: &'a LeaseClause) -> Self {
        Self {
            lease: Some(lease),
            ..self
        }
    }

    /// The same call with nothing but its lease clause.
    #[doc(hidden)]
    #[must_use]
    pub const fn without_ops(self) -> Self {
        Self { rows: &[], ..self }
    }

    /// Does the operations at `now` to the value of a key, `None` for one that has none.
    ///
    /// It is a function of its arguments and nothing else: a store may call it again with another
    /// value. The bytes are those that Redis would keep.
    ///
    /// # Errors
    ///
    /// [`ForeignData`](super::super::StoreErrorKind::ForeignData) when the value is not one that
    /// limiters of these quotas write.
    pub fn apply(&self, value: Option<&[u8]>, now: Timestamp) -> Result<Applied, StoreError> {
        let limits = self.plan.limits();
        let mut own = None;
        let quotas = limits.measured_by(self.tier, &mut own);
        let quotas = quotas.map_err(|_| foreign("there is no such tier"))?;
        let read = SubjectValue::read(self.plan, value);
        let mut subject =
            read.ok_or_else(|| foreign("the value of this key is not one of ours"))?;
        subject.begin(now.as_nanos(), limits, quotas);
        let has_leases = self.lease.is_some() || !subject.holders.rows.is_empty();
        let leasing = has_leases
            .then(|| Leasing::begin(self.plan, quotas, now.as_micros(), self.lease, &mut subject));
        let mut step = Stepper {
            now,
            limits,
            quotas,
            tier: self.tier,
            meters: leasing
                .as_ref()
                .map(|leasing| leasing.meters(&subject.holders)),
            leasing,
            subject: &mut subject,
            numbers: now.as_micros().to_be_bytes().to_vec(),
        };
        for (op, times) in self.rows {
            step.row(op, *times);
        }
        step.finish();
        let reply = Reply(step.numbers);
        let written = subject.write(self.plan, value, now);
        let write = written.map(|(value, expires_in)| Write { value, expires_in });
        Ok(Applied { reply, write })
    }

    /// The arguments of the general script, for tests of this crate: it gives the same.
    #[doc(hidden)]
    #[must_use]
    pub fn script_arguments(&self, now: Option<Timestamp>) -> Vec<String> {
        let plan = self.plan.of(self.tier);
        let arguments = plan.map(|plan| {
            let asking = Asking {
                rows: self.rows,
                lease: self.lease,
            };
            let arguments = plan.arguments(now.map(Timestamp::as_micros), &[asking]);
            arguments.into_iter().map(String::from).collect()
        });
        arguments.unwrap_or_default()
    }
}

impl LateCall {
    /// The call.
    #[must_use]
    pub fn call(&self) -> Call<'_> {
        Call {
            plan: &self.plan,
            tier: self.tier,
            rows: &self.rows,
            lease: self.lease.as_ref(),
        }
    }
}

impl Reply {
    /// The answer of the script.
    #[doc(hidden)]
    #[must_use]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    #[doc(hidden)]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn foreign(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::ForeignData, detail)
}

/// Does the rows of a call, one after another.
struct Stepper<'a> {
    now: Timestamp,
    limits: &'a Limits,
    quotas: &'a Quotas,
    tier: Chosen,
    subject: &'a mut SubjectValue,
    leasing: Option<Leasing<'a>>,
    /// The quotas' meters, with what is reserved beside the states.
    meters: Option<Vec<Beside<'a>>>,
    /// The reply so far.
    numbers: Vec<u8>,
}

impl Stepper<'_> {
    /// Does an operation as often as this, and says once what several in a row came to.
    fn row(&mut self, op: &Op, times: usize) {
        let mut left = times;
        while left > 0 {
            let outcome = self.run(op);
            let (alike, more) = self.alike(op, &outcome, left);
            self.say(alike, &outcome);
            if let Some(more) = more {
                self.run(&more);
            }
            left -= alike;
        }
    }

    fn run(&mut self, op: &Op) -> OpOutcome<Measures> {
        let apply = Apply {
            time: self.now,
            limits: self.limits,
            quotas: self.quotas,
            tier: self.tier.index(),
            op,
        };
        if let (Op::Reset, Some(leasing)) = (op, &mut self.leasing) {
            leasing.reset(&mut self.subject.holders);
            self.meters = Some(leasing.meters(&self.subject.holders));
        }
        let before = self.subject.block();
        let mut block = before;
        let mut subject = Subject {
            states: &mut self.subject.states,
            block: &mut block,
        };
        let outcome = match &self.meters {
            Some(meters) => apply.run_by(meters, &mut subject),
            None => apply.run(&mut subject),
        };
        self.subject
            .note(op, before != block, self.now.as_nanos(), self.limits);
        outcome
    }

    /// How many of the same operations in a row come to the same, as far as the script tells, and
    /// the operation that stands for all but the first of them.
    fn alike(&self, op: &Op, outcome: &OpOutcome<Measures>, left: usize) -> (usize, Option<Op>) {
        let charged = outcome.answer.charged;
        let cost = match op {
            Op::Peek(_) | Op::Deny(_) => return (left, None),
            Op::Acquire(_) | Op::Reserve(_) if charged == 0 => return (left, None),
            Op::Acquire(cost) | Op::Reserve(cost) => *cost,
            _ => return (1, None),
        };
        let [meter] = self.quotas.meters.as_slice() else {
            return (1, None);
        };
        if left == 1 || !meter.is_even() {
            return (1, None);
        }
        let state = &self.subject.states[self.quotas.counters[0]];
        let beside = self.meters.as_ref().map(|meters| &meters[0]);
        let now = self.now.as_nanos();
        let available = beside.map_or_else(
            || meter.available(state, now),
            |beside| beside.available(state, now),
        );
        let further = available / cost;
        let further = usize::try_from(further).map_or(left - 1, |more| more.min(left - 1));
        let more = (further > 0).then(|| Op::Hit(further as u64 * cost));
        (1 + further, more)
    }

    /// Grants units, and adds the answer to the clause, or how long a denial is to be held to.
    fn finish(&mut self) {
        let is_blocked = self.subject.block().left(self.now.as_nanos(), None) > 0;
        let leasing = self.leasing.as_mut();
        let reply = leasing.and_then(|leasing| leasing.finish(self.subject, is_blocked));
        if let Some(reply) = reply {
            for number in reply.numbers() {
                self.push(number);
            }
        }
        let leasing = self.leasing.as_ref();
        let hold = leasing.and_then(|leasing| leasing.hold_beside(&self.subject.holders));
        if let Some(hold) = hold {
            self.push(hold);
        }
    }

    fn say(&mut self, alike: usize, outcome: &OpOutcome<Measures>) {
        let OpOutcome {
            answer,
            told,
            blocked,
        } = outcome;
        let wait = match answer.verdict {
            Verdict::Fits { wait } => wait,
            Verdict::After(_) | Verdict::Never => 0,
        };
        self.push(alike as u64);
        self.push(u64::from(!answer.verdict.fits()));
        self.push(wait.div_ceil(1_000));
        self.push(answer.charged);
        self.push(blocked.div_ceil(1_000));
        for measure in &told.0 {
            self.measure(measure);
        }
    }

    fn measure(&mut self, measure: &Measure) {
        let denied = u64::from(measure.denied);
        let retry_after = measure
            .retry_after
            .map_or(u64::MAX, |wait| wait.div_ceil(1_000));
        let used = match measure.standing {
            Usage::Level(level) => level.used,
            Usage::Stepped(stepped) => stepped.used,
            Usage::Window(WindowUsage { used, until_end }) => {
                let end = until_end.div_ceil(1_000);
                let reset_after = if used == 0 { 0 } else { end };
                return self.counted(measure, retry_after, [used, reset_after, end]);
            }
            Usage::Counted(counted) => {
                return self.counted(measure, retry_after, counted.told());
            }
        };
        // With the flags goes the part of the level that is less than a microsecond.
        self.push(denied + 4 * (used % 1_000));
        self.push(retry_after);
        self.push(used / 1_000);
    }

    fn counted(&mut self, measure: &Measure, retry_after: u64, numbers: [u64; 3]) {
        self.push(u64::from(measure.denied) + 2 * u64::from(measure.excess));
        self.push(retry_after);
        for number in numbers {
            self.push(number);
        }
    }

    /// A number as the script writes it: the largest of all stands for -1.
    fn push(&mut self, number: u64) {
        self.numbers.extend_from_slice(&number.to_be_bytes());
    }
}

/// The findings about each quota.
struct Measures(SmallVec<[Measure; 2]>);

impl Findings for Measures {
    fn of_one(_: &Policy, measure: &Measure) -> Self {
        Self(SmallVec::from_iter([*measure]))
    }

    fn of_set(_: &[Policy], measures: impl Iterator<Item = Measure>) -> Self {
        Self(measures.collect())
    }
}
