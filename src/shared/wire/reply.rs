//! Replies: whole numbers that become decisions.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    Reply,
    node_message::NodeReply,
    plan::{QuotaPlan, ReplyForm, ReplyPlan},
};
use crate::{
    algorithm::{State, View},
    clock::Timestamp,
    decision::{Decision, Outcome, Policy, QuotaStatuses, Status, UNKNOWN},
    quota::{MAX_REFILL_NANOS, Priority},
    shared::batching::{AnsweredOps, Row, SubjectAnswer},
    store::error::{StoreError, StoreErrorKind},
};

/// The whole numbers of the script's reply, in order.
struct Numbers<'a>(&'a [u8]);

/// A script's reply about one subject; `None` if a specialized script did nothing and the general one decides.
pub(in crate::shared) type SubjectReply = Result<Option<AnsweredOps>, StoreError>;

/// Reads a script's reply about one subject: `ops` has the number of its operations, and whether a
/// message was attached.
pub(in crate::shared) fn answered(
    text: &[u8],
    plan: &ReplyPlan,
    (ops, has_lease): (usize, bool),
) -> Option<AnsweredOps> {
    if !has_lease {
        let (rows, rest) = rows(text, plan, ops)?;
        return Some(AnsweredOps {
            rows,
            lease: None,
            hold: rest.hold()?,
        });
    }
    let (text, lease) = NodeReply::split(text)?;
    let (rows, rest) = rows(text, plan, ops)?;
    rest.0.is_empty().then(|| AnsweredOps {
        rows,
        lease: Some(Box::new(lease)),
        hold: None,
    })
}

/// Reads a store's reply to this many operations, and to a message if one was attached.
pub(in crate::shared) fn of_store(
    reply: &Reply,
    plan: &ReplyPlan,
    ops: (usize, bool),
) -> SubjectAnswer {
    let answered = answered(reply.as_bytes(), plan, ops);
    answered.ok_or_else(|| {
        StoreError::new(
            StoreErrorKind::ForeignData,
            "the reply is not one to this call",
        )
    })
}

/// The error for a reply that no script of this crate sends.
pub(in crate::shared) fn strange() -> StoreError {
    StoreError::foreign("not the script's reply")
}

/// Reads the outcomes of `ops` operations of a subject, in rows of equal ones. Returns them and the
/// rest of the reply; `None` for a reply that no script sends.
fn rows<'a>(
    text: &'a [u8],
    plan: &ReplyPlan,
    ops: usize,
) -> Option<(SmallVec<[Row; 1]>, Numbers<'a>)> {
    let mut numbers = Numbers(text);
    let time = Timestamp::from_micros(numbers.next()?);
    let mut rows = SmallVec::new();
    let mut left = ops;
    while left > 0 {
        let count = usize::try_from(numbers.next()?).ok()?;
        let first = Numbers(numbers.0);
        let decision = numbers.decision(plan, (time, 0))?;
        if !(1..=left).contains(&count) {
            return None;
        }
        left -= count;
        if decision.charged() == 0 {
            rows.push(Row { count, decision });
            continue;
        }
        rows.push(Row { count: 1, decision });
        // The numbers are those after the first operation, of a lone bucket if there are more.
        for before in 1..count as u64 {
            let decision = Numbers(first.0).decision(plan, (time, before))?;
            rows.push(Row { count: 1, decision });
        }
    }
    Some((rows, numbers))
}

impl Numbers<'_> {
    /// Reads the rest of a reply: how long a denial stays cached at most, if other nodes hold units that
    /// they may return.
    fn hold(mut self) -> Option<Option<Duration>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let micros = self.next().filter(|micros| *micros > 0)?;
        self.0
            .is_empty()
            .then(|| Some(Duration::from_micros(micros)))
    }

    fn next(&mut self) -> Option<u64> {
        self.optional()?
    }

    /// Reads a number; `Some(None)` for one below 0, which stands for none.
    fn optional(&mut self) -> Option<Option<u64>> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::try_from(i64::from_be_bytes(*number)).ok())
    }

    /// Reads the outcome of an operation after `before` equal ones that took as many units.
    fn decision(&mut self, plan: &ReplyPlan, (time, before): (Timestamp, u64)) -> Option<Decision> {
        // 2 is a denial that only the class of the request caused.
        let denied = self.next()?;
        let wait = Duration::from_micros(self.next()?);
        let charged = self.next()?;
        let blocked = Duration::from_micros(self.next()?);
        let outcome = if denied > 0 {
            Outcome::Denied
        } else if wait.is_zero() {
            Outcome::Allowed
        } else {
            Outcome::Delayed(wait)
        };
        let taken = charged.saturating_mul(before);
        let statuses = self.statuses(plan, (time, taken))?;
        let decision = Decision::new(outcome, charged, time, statuses);
        let mut decision = decision.in_tier(plan.index);
        if !plan.class.is_critical() {
            decision.set_class(plan.class, denied == 2);
        }
        Some(if blocked.is_zero() {
            decision
        } else {
            decision.into_blocked(blocked)
        })
    }

    fn statuses(
        &mut self,
        plan: &ReplyPlan,
        (time, taken): (Timestamp, u64),
    ) -> Option<QuotaStatuses> {
        if let ([policy], [quota]) = (&*plan.policies, plan.measures.as_slice()) {
            let status = self.status((policy, quota), plan.class, (time, taken))?;
            return Some(QuotaStatuses::of_one(policy, status));
        }
        let quotas = plan.policies.iter().zip(&plan.measures);
        let statuses = quotas.map(|of| self.status(of, plan.class, (time, taken)));
        let statuses: Vec<_> = statuses.collect::<Option<_>>()?;
        Some(QuotaStatuses::of_set(&plan.policies, statuses.into_iter()))
    }

    fn status(
        &mut self,
        (policy, quota): (&Policy, &QuotaPlan),
        class: Priority,
        (time, taken): (Timestamp, u64),
    ) -> Option<Status> {
        let flags = self.next()?;
        let wait = self.optional()?.map_or(UNKNOWN, nanos);
        let status = match quota.form {
            ReplyForm::Bucket => {
                let now = time.as_nanos();
                let full_at = policy.last_refill(now).saturating_add(self.level(flags)?);
                let taken = i64::try_from(taken).unwrap_or(i64::MAX);
                let state = quota.meter.moved(&State::Instant(full_at), now, taken);
                let view = View { class, held: None };
                quota.meter.status(&state, now, view)
            }
            ReplyForm::Window => {
                let [used, _, until_end] = [self.next()?, self.next()?, nanos(self.next()?)];
                Status::window(used, policy.limit(), until_end).in_excess(flags & 2 > 0)
            }
            ReplyForm::Numbers => {
                let [left, reset_after, window] = [self.next()?, self.next()?, self.next()?];
                let status = Status::counted(left, nanos(reset_after), nanos(window));
                status.in_excess(flags & 2 > 0)
            }
        };
        Some(if flags & 1 > 0 {
            status.denied(wait)
        } else {
            status
        })
    }

    /// Reads the nanoseconds until a bucket is full: the flags have the part below a microsecond.
    fn level(&mut self, flags: u64) -> Option<u64> {
        let used = nanos(self.next()?).checked_add(flags / 4);
        used.filter(|used| *used <= MAX_REFILL_NANOS)
    }
}

const fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        limiter::tier_set::{Chosen, LimitTerms, TierSet},
        quota::Quota,
        shared::wire::plan::Plan,
    };

    /// A limit of ten a second.
    fn plan() -> Arc<ReplyPlan> {
        let limits = TierSet::new(LimitTerms::of(Quota::per_second(10)));
        let plan = Plan::new(&limits.expect("a good quota"));
        let plan = plan.of(Chosen::Tier(0)).expect("the default tier");
        Arc::clone(&plan.reply)
    }

    /// Reads a reply about two operations under a limit of ten a second.
    fn read(numbers: &[i64]) -> Option<Vec<Decision>> {
        let plan = plan();
        let bytes = numbers.iter().flat_map(|number| number.to_be_bytes());
        let bytes: Vec<_> = bytes.collect();
        let (rows, rest) = rows(&bytes, &plan, 2)?;
        rest.hold()?;
        let row = |row: Row| std::iter::repeat_n(row.decision, row.count);
        Some(rows.into_iter().flat_map(row).collect())
    }

    #[test]
    fn operations_with_one_outcome_share_one_entry() {
        let decisions = read(&[7, 2, 0, 0, 1, 0, 0, -1, 100_000]).expect("a reply");
        let remaining: Vec<_> = decisions.iter().map(Decision::remaining).collect();
        assert_eq!(remaining, [Some(9), Some(8)]);
        let denied = read(&[7, 2, 1, 0, 0, 0, 1, 5, 1_000_000]).expect("a reply");
        assert_eq!(denied[0].retry_after(), Some(Duration::from_micros(5)));
        assert_eq!(denied[0], denied[1]);
    }

    #[test]
    fn a_reply_that_no_script_sends_is_an_error() {
        let one = [1, 0, 0, 1, 0, 0, -1, 100_000];
        let whole = [&[7], &one[..], &one].concat();
        assert!(read(&whole).is_some());
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_none(), "{cut} numbers");
        }
        assert!(read(&[&whole[..], &[0]].concat()).is_none(), "too many");
        for alike in [-1, 0, 3, i64::MAX] {
            assert!(read(&[&[7, alike], &one[1..]].concat()).is_none());
        }
        for used in [-1, i64::MAX] {
            let level = [&[7, 2], &one[1..5], &[4 * 999, -1, used]].concat();
            assert!(read(&level).is_none(), "{used} microseconds from full");
        }
        // No sum overflows, whatever the reply has as charged.
        assert!(read(&[7, 2, 0, 0, i64::MAX, 0, 0, -1, 0]).is_some());
    }
}
