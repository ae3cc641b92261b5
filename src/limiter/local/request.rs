use std::{slice, time::Duration};

use crate::{
    algorithm::{Answer, Counts, Meter, State, Verdict, step},
    decision::{Decision, QuotaStatus, QuotaStatuses, Receipt},
    limiter::quotas::{Quotas, TierIndex},
    op::Op,
};

/// An operation on one key, with all that does not depend on the key.
pub(super) struct Request<'a> {
    pub(super) now: u64,
    pub(super) receipt: Receipt,
    pub(super) tier: TierIndex,
    pub(super) quotas: &'a Quotas,
    pub(super) block_for: Option<u64>,
    pub(super) op: Op,
}

impl Request<'_> {
    pub(super) fn decide(&self, states: &mut [State], blocked_until: &mut u64) -> Decision {
        let blocked = self.blocked_for(blocked_until);
        let op = match self.op {
            // Who is blocked takes nothing. One unit is what taking up to some number hangs on.
            Op::Acquire(cost) if blocked > 0 => Op::Peek(cost),
            Op::AcquireUpTo(most) if blocked > 0 => Op::Peek(most.min(1)),
            op => op,
        };
        let (answer, statuses) = self.step(states, op);
        let decision = Decision::new(answer.outcome(), answer.charged, self.receipt, statuses);
        match self.op {
            Op::Acquire(0) | Op::AcquireUpTo(0) | Op::Peek(0) | Op::Hit(0) => decision,
            Op::Acquire(_) | Op::AcquireUpTo(_)
                if blocked == 0 && matches!(answer.verdict, Verdict::After(_)) =>
            {
                self.start_block(decision, blocked_until)
            }
            Op::Refund(..) => decision,
            Op::Reset => {
                *blocked_until = 0;
                // Also what only other tiers count.
                states.fill(State::FRESH);
                decision
            }
            _ if blocked > 0 => decision.into_blocked(Duration::from_nanos(blocked)),
            _ => decision,
        }
    }

    /// How long the key stays out.
    fn blocked_for(&self, blocked_until: &mut u64) -> u64 {
        let Some(longest) = self.block_for else {
            return 0;
        };
        // A clock that stepped back must not lock the key out for longer than a block lasts.
        *blocked_until = (*blocked_until).min(self.now.saturating_add(longest));
        blocked_until.saturating_sub(self.now)
    }

    fn start_block(&self, decision: Decision, blocked_until: &mut u64) -> Decision {
        let Some(block) = self.block_for else {
            return decision;
        };
        *blocked_until = self.now.saturating_add(block);
        decision.into_blocked(Duration::from_nanos(block))
    }

    fn step(&self, states: &mut [State], op: Op) -> (Answer, QuotaStatuses) {
        let Quotas {
            policies, meters, ..
        } = self.quotas;
        let states = &mut states[..meters.len()];
        let now = self.now;
        let status = |policy, meter: &Meter, state, verdict| {
            QuotaStatus::measured(policy, &meter.measure(state, now, verdict))
        };
        if let ([policy], [meter]) = (policies.as_slice(), meters.as_slice()) {
            let mut verdict = Verdict::FITS;
            let answer = step(meters, states, now, op, slice::from_mut(&mut verdict));
            return (answer, status(policy, meter, &states[0], verdict).into());
        }
        let mut verdicts = vec![Verdict::FITS; meters.len()];
        let answer = step(meters, states, now, op, &mut verdicts);
        let quotas = policies.iter().zip(meters).zip(states).zip(verdicts);
        let statuses = quotas
            .map(|(((policy, meter), state), verdict)| status(policy, meter, &*state, verdict));
        (answer, statuses.collect::<Vec<_>>().into())
    }
}
