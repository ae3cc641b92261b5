use std::{iter, time::Duration};

use redis::Value;

use super::plan::TierPlan;
use crate::{
    clock::Timestamp,
    decision::{
        Decision, Level, Measure, Outcome, Policy, QuotaStatus, QuotaStatuses, Receipt, Standing,
    },
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
    let mut decisions = Vec::with_capacity(ops);
    while decisions.len() < ops {
        let alike = usize::try_from(numbers.next()?).ok()?;
        let decision = numbers.decision(plan, receipt)?;
        if !(1..=ops - decisions.len()).contains(&alike) {
            return None;
        }
        let row = iter::successors(Some(decision), |last| Some(last.next_alike()));
        decisions.extend(row.take(alike));
    }
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
        if let ([policy], [full]) = (plan.policies.as_slice(), plan.full.as_slice()) {
            return Some(self.status(policy, *full)?.into());
        }
        let quotas = plan.policies.iter().zip(&plan.full);
        let statuses = quotas.map(|(policy, full)| self.status(policy, *full));
        Some(statuses.collect::<Option<Vec<_>>>()?.into())
    }

    /// `full` is the level of a full bucket where a level is all that the script tells.
    fn status(&mut self, policy: &Policy, full: Option<Level>) -> Option<QuotaStatus> {
        let flags = self.next()?;
        let retry_after = self.optional()?.map(nanos);
        let [one, two, three] = [self.next()?, self.next()?, self.next()?];
        let level = full.map(|full| Level {
            used: nanos(one) + two,
            ..full
        });
        let measure = Measure {
            denied: flags & 1 > 0,
            excess: level.map_or(flags & 2 > 0, Level::is_excess),
            retry_after,
            standing: match level {
                Some(level) => Standing::Level(level),
                None => Standing::counted(one, nanos(two), nanos(three)),
            },
        };
        Some(QuotaStatus::measured(policy, &measure))
    }
}

const fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}
