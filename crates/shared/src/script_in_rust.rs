//! The script's arithmetic, for stores that only keep bytes.
//!
//! `crates/store/src/redis/script/decide.lua` does the same.

use std::{borrow::Cow, time::Duration};

use smallvec::SmallVec;

use super::{
    settle_node_rows::Settlement,
    wire::{
        Applied, Reply, StoreCall, Write,
        plan::ReplyPlan,
        reply::{self, Run, SubjectReply},
        stored_value::SubjectValue,
    },
};
use tower_ratelimit_core::{
    algorithm::{CounterIndex, Held, State, States, Verdict},
    clock::{ClockReading, Timestamp},
    decision::{Decision, Op},
    limiter::{
        limit::{Chosen, TierSet},
        subject::{Apply, OpOutcome, Subject},
        tier::TierQuotas,
    },
};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

impl StoreCall<'_> {
    /// Applies the operations at `now` to the value of a key; `None` if the key has no value.
    ///
    /// The result depends on the arguments only: a store may call this again with another value.
    /// The bytes are those that Redis would keep.
    ///
    /// # Errors
    ///
    /// [`ForeignData`](tower_ratelimit_store::StoreErrorKind::ForeignData) if the value was not written by
    /// limiters of these quotas.
    pub fn apply(&self, value: Option<&[u8]>, now: Timestamp) -> Result<Applied, StoreError> {
        let limits = &self.plan.limits;
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
        let plan = self.plan.of(self.tier);
        let plan = plan.ok_or_else(|| foreign("there is no such tier"))?;
        let mut step = Stepper {
            now,
            limits,
            quotas,
            tier: self.tier,
            keeps_states: self.keeps_states,
            plan: &plan.reply,
            held: held.unwrap_or_default(),
            settlement,
            subject: &mut subject,
            runs: SmallVec::new(),
        };
        for (op, times) in self.runs {
            step.apply_run(op, *times);
        }
        let reply = Reply::decided(step.finish());
        let written = subject.write(self.plan, value, now);
        let write = written.map(|(value, expires_in)| Write { value, expires_in });
        Ok(Applied { reply, write })
    }
}

fn foreign(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::ForeignData, detail)
}

/// Applies the runs of a call, one after another.
struct Stepper<'a> {
    now: Timestamp,
    limits: &'a TierSet,
    quotas: &'a TierQuotas,
    tier: Chosen,
    keeps_states: bool,
    subject: &'a mut SubjectValue,
    settlement: Option<Settlement<'a>>,
    /// The units of each quota that leases hold; empty without a settlement.
    held: Vec<Option<Held>>,
    plan: &'a ReplyPlan,
    /// The decisions so far.
    runs: SmallVec<[Run; 1]>,
}

impl Stepper<'_> {
    /// Applies an operation this many times. Those that change nothing share one run.
    fn apply_run(&mut self, op: &Op, times: usize) {
        let mut left = times;
        while left > 0 {
            let decision = self.run(op);
            let is_as_the_next = match op {
                Op::Peek(_) | Op::Deny(_) => true,
                Op::Acquire(_) | Op::Reserve(_) => decision.charged() == 0,
                _ => false,
            };
            let count = if is_as_the_next { left } else { 1 };
            let counters = self.quotas.counters.iter();
            let states = counters.map(|counter| Cow::Borrowed(&self.subject.states[counter.0]));
            let states = self.keeps_states.then_some(states);
            let run = reply::run_of(self.plan, &self.held, (count, decision), states);
            self.runs.push(run);
            left -= count;
        }
    }

    fn run(&mut self, op: &Op) -> Decision {
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
        let OpOutcome { judgement, blocked } = apply.conclude(&mut key, cost, takes);
        let blocked = Duration::from_micros(blocked.div_ceil(1_000));
        let decision = reply::decision(
            self.plan,
            self.now,
            (judgement.outcome(), judgement.charged),
            (judgement.shed, blocked),
            apply.statuses(&mut key),
        );
        self.subject
            .note(op, before != block, self.now.as_nanos(), self.limits);
        decision
    }

    /// Grants units. The decisions, with the answer to the message, or how long a denial stays cached.
    fn finish(mut self) -> SubjectReply {
        let is_blocked = self.subject.block().left(self.now.as_nanos(), None) > 0;
        let settlement = self.settlement.as_mut();
        let lease = settlement.and_then(|settlement| settlement.finish(self.subject, is_blocked));
        let settlement = self.settlement.as_ref();
        let hold = settlement.and_then(|settlement| settlement.hold_beside(&self.subject.nodes));
        SubjectReply {
            runs: self.runs,
            lease: lease.map(Box::new),
            hold: hold.map(Duration::from_micros),
        }
    }
}

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
