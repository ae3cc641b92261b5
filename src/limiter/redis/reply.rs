use std::time::Duration;

use redis::Value;

use super::plan::TierPlan;
use crate::{
    clock::Timestamp,
    decision::{Decision, Measure, Outcome, QuotaStatus, QuotaStatuses, Receipt, Standing},
};

/// The whole numbers of the script's reply, in order.
struct Numbers<'a>(&'a [u8]);

/// Reads what the script says of each of `ops` operations; `None` for what the script never says.
pub(super) fn decisions(reply: &Value, plan: &TierPlan, ops: usize) -> Option<Vec<Decision>> {
    let Value::BulkString(bytes) = reply else {
        return None;
    };
    let mut numbers = Numbers(bytes);
    let receipt = Receipt::new(Timestamp::from_micros(numbers.next()?));
    let decisions = (0..ops).map(|_| numbers.decision(plan, receipt));
    let decisions = decisions.collect::<Option<Vec<_>>>()?;
    numbers.0.is_empty().then_some(decisions)
}

impl Numbers<'_> {
    fn next(&mut self) -> Option<u64> {
        self.optional()?
    }

    /// `Some(None)` for a number below 0, which stands for there being none.
    fn optional(&mut self) -> Option<Option<u64>> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::try_from(i64::from_be_bytes(*number)).ok())
    }

    fn decision(&mut self, plan: &TierPlan, receipt: Receipt) -> Option<Decision> {
        let denied = self.next()? == 1;
        let wait = Duration::from_micros(self.next()?);
        let charged = self.next()?;
        let blocked = Duration::from_micros(self.next()?);
        let outcome = match denied {
            true => Outcome::Denied,
            false if wait.is_zero() => Outcome::Allowed,
            false => Outcome::Delayed(wait),
        };
        let decision = Decision::new(outcome, charged, receipt, self.statuses(plan)?);
        Some(if blocked.is_zero() {
            decision
        } else {
            decision.into_blocked(blocked)
        })
    }

    fn statuses(&mut self, plan: &TierPlan) -> Option<QuotaStatuses> {
        if let [policy] = plan.policies.as_slice() {
            return Some(QuotaStatus::measured(policy, &self.measure()?).into());
        }
        let statuses = plan.policies.iter();
        let statuses = statuses.map(|policy| Some(QuotaStatus::measured(policy, &self.measure()?)));
        Some(statuses.collect::<Option<Vec<_>>>()?.into())
    }

    fn measure(&mut self) -> Option<Measure> {
        let flags = self.next()?;
        Some(Measure {
            denied: flags & 1 > 0,
            excess: flags & 2 > 0,
            retry_after: self.optional()?.map(nanos),
            standing: Standing::counted(self.next()?, nanos(self.next()?), nanos(self.next()?)),
        })
    }
}

const fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}
