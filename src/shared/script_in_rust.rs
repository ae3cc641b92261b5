//! The script's arithmetic, for stores that only keep bytes.
//!
//! `redis/script/decide.lua` does the same.

use smallvec::SmallVec;

use super::{
    subject_settlement::Settlement,
    wire::{Applied, Reply, StoreCall, Write, subject_value::SubjectValue},
};
use crate::{
    algorithm::{CounterIndex, Held, State, States, Verdict, View},
    clock::{ClockReading, Timestamp},
    decision::{Marks, Op, Status, UNKNOWN},
    limiter::{
        apply_operation::{Apply, OpOutcome, Subject},
        tier_quotas::TierQuotas,
        tier_set::{Chosen, TierSet},
    },
    store::error::{StoreError, StoreErrorKind},
};

impl StoreCall<'_> {
    /// Applies the operations at `now` to the value of a key; `None` if the key has no value.
    ///
    /// The result depends on the arguments only: a store may call this again with another value.
    /// The bytes are those that Redis would keep.
    ///
    /// # Errors
    ///
    /// [`ForeignData`](crate::store::StoreErrorKind::ForeignData) if the value was not written by
    /// limiters of these quotas.
    pub fn apply(&self, value: Option<&[u8]>, now: Timestamp) -> Result<Applied, StoreError> {
        let limits = self.plan.limits();
        let mut own = None;
        let quotas = limits.measured_by(self.tier, &mut own);
        let quotas = quotas.map_err(|_| foreign("there is no such tier"))?;
        let read = SubjectValue::read(self.plan, value);
        let mut subject =
            read.ok_or_else(|| foreign("the value of this key is not one of ours"))?;
        subject.begin(now.as_nanos(), limits, quotas);
        let has_rows = self.message.is_some() || !subject.nodes.rows.is_empty();
        let begin = |subject: &mut _| {
            let quotas = (quotas, self.tier.class());
            Settlement::begin(self.plan, quotas, now.as_micros(), self.message, subject)
        };
        let settlement = has_rows.then(|| begin(&mut subject));
        let held = (settlement.as_ref()).map(|settlement| settlement.held(&subject.nodes));
        let mut step = Stepper {
            now,
            limits,
            quotas,
            tier: self.tier,
            held: held.unwrap_or_default(),
            settlement,
            subject: &mut subject,
            numbers: now.as_micros().to_be_bytes().to_vec(),
        };
        for (op, times) in self.rows {
            step.row(op, *times);
        }
        step.finish();
        let reply = Reply::from_bytes(step.numbers);
        let written = subject.write(self.plan, value, now);
        let write = written.map(|(value, expires_in)| Write { value, expires_in });
        Ok(Applied { reply, write })
    }
}

fn foreign(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::ForeignData, detail)
}

/// Applies the rows of a call, one after another.
struct Stepper<'a> {
    now: Timestamp,
    limits: &'a TierSet,
    quotas: &'a TierQuotas,
    tier: Chosen,
    subject: &'a mut SubjectValue,
    settlement: Option<Settlement<'a>>,
    /// The units of each quota that leases hold; empty without a settlement.
    held: Vec<Option<Held>>,
    /// The reply so far.
    numbers: Vec<u8>,
}

impl Stepper<'_> {
    /// Applies an operation this many times. Consecutive operations with the same outcome share one
    /// entry of the reply.
    fn row(&mut self, op: &Op, times: usize) {
        let mut left = times;
        while left > 0 {
            let (outcome, explained) = self.run(op);
            let (alike, more) = self.alike(op, &outcome, left);
            self.push_outcome(alike, &outcome, &explained);
            if let Some(more) = more {
                self.run(&more);
            }
            left -= alike;
        }
    }

    fn run(&mut self, op: &Op) -> (OpOutcome, Explained) {
        if let Op::Reset = op {
            // Also the counters of other tiers.
            self.subject.states.fill(State::FRESH);
            if let Some(settlement) = &mut self.settlement {
                settlement.reset(&mut self.subject.nodes);
                self.held = settlement.held(&self.subject.nodes);
            }
        }
        let before = self.subject.block();
        let mut block = before;
        let mut key = Subject {
            states: Counted {
                counters: &self.quotas.counters,
                states: &mut self.subject.states,
            },
            block: &mut block,
            verdicts: &mut SmallVec::<[_; 2]>::from_elem(Verdict::FITS, self.quotas.meters.len()),
        };
        let apply = Apply {
            time: ClockReading::alike(self.now),
            limits: self.limits,
            quotas: self.quotas,
            tier: self.tier.index(),
            class: self.tier.class(),
            held: &self.held,
            op: op.as_ref(),
        };
        let room = apply.room(&mut key);
        let cost = apply.cost(room.unwrap_or(0));
        let takes = cost.is_some_and(|cost| apply.judge(&mut key, cost, false));
        let outcome = apply.conclude(&mut key, cost, takes);
        let statuses = self.quotas.policies.iter().zip(apply.statuses(&mut key));
        let explained = statuses.map(|(policy, status)| {
            let used = status.used(policy).unwrap_or(UNKNOWN);
            (status, (used, policy.step()))
        });
        let explained = explained.collect();
        self.subject
            .note(op, before != block, self.now.as_nanos(), self.limits);
        (outcome, explained)
    }

    /// The number of equal consecutive operations with the same outcome, as the script counts them,
    /// and the operation that does all of them except the first.
    fn alike(&self, op: &Op, outcome: &OpOutcome, left: usize) -> (usize, Option<Op>) {
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
        let state = &self.subject.states[self.quotas.counters[0].0];
        let now = self.now.as_nanos();
        let view = View::of(self.tier.class(), &self.held, 0);
        let further = meter.available(state, now, view) / cost;
        let further = usize::try_from(further).map_or(left - 1, |more| more.min(left - 1));
        let more = (further > 0).then(|| Op::Hit(further as u64 * cost));
        (1 + further, more)
    }

    /// Grants units, and adds the reply to the message, or how long a denial stays cached.
    fn finish(&mut self) {
        let is_blocked = self.subject.block().left(self.now.as_nanos(), None) > 0;
        let settlement = self.settlement.as_mut();
        let reply = settlement.and_then(|settlement| settlement.finish(self.subject, is_blocked));
        if let Some(reply) = reply {
            for number in reply.numbers() {
                self.push(number);
            }
        }
        let settlement = self.settlement.as_ref();
        let hold = settlement.and_then(|settlement| settlement.hold_beside(&self.subject.nodes));
        if let Some(hold) = hold {
            self.push(hold);
        }
    }

    fn push_outcome(&mut self, alike: usize, outcome: &OpOutcome, explained: &Explained) {
        let OpOutcome { answer, blocked } = outcome;
        let wait = match answer.verdict {
            Verdict::Fits { wait } => wait,
            Verdict::After(_) | Verdict::Never => 0,
        };
        self.push(alike as u64);
        let is_denied = !answer.verdict.fits();
        self.push(u64::from(is_denied) + u64::from(is_denied && answer.shed));
        self.push(wait.div_ceil(1_000));
        self.push(answer.charged);
        self.push(blocked.div_ceil(1_000));
        for (status, used) in explained {
            self.status(status, *used);
        }
    }

    fn status(&mut self, status: &Status, (used, step): (u64, u64)) {
        let micros = |time: u64| {
            if time == UNKNOWN {
                UNKNOWN
            } else {
                time.div_ceil(1_000)
            }
        };
        let denied = u64::from(status.is(Marks::DENIED));
        if status.is_bucket() {
            let now = self.now.as_nanos();
            let last = if step == 0 { now } else { now - now % step };
            let used = status.end.saturating_sub(last);
            // The flags include the part of the level below a microsecond.
            self.push(denied + 4 * (used % 1_000));
            self.push(micros(status.wait));
            return self.push(used / 1_000);
        }
        self.push(denied + 2 * u64::from(status.is(Marks::EXCESS)));
        self.push(micros(status.wait));
        self.push(if status.is(Marks::COUNT) {
            used
        } else {
            status.left
        });
        self.push(micros(status.reset_after));
        self.push(micros(status.window));
    }

    /// Adds a number as the script writes it: `u64::MAX` has the bytes of -1.
    fn push(&mut self, number: u64) {
        self.numbers.extend_from_slice(&number.to_be_bytes());
    }
}

/// The status of each quota, the units in use, and the step of its bucket.
type Explained = SmallVec<[(Status, (u64, u64)); 2]>;

/// The states of a key by counter; as many follow for responses.
struct Counted<'a> {
    counters: &'a [CounterIndex],
    states: &'a mut [State],
}

impl States for Counted<'_> {
    fn state(&mut self, place: usize) -> &mut State {
        let quotas = self.counters.len();
        let first = self.states.len() / 2 * (place / quotas);
        &mut self.states[first + self.counters[place % quotas].0]
    }
}
