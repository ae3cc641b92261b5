//! The script's reply: whole numbers that become decisions.

use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;

use super::{
    arguments::{QuotaPlan, TierPlan, Told},
    call::Reply,
    coalesce::{AnsweredOps, Row, SubjectAnswer},
    lease::LeaseReply,
};
use crate::{
    clock::Timestamp,
    decision::{
        Decision, Level, Measure, Outcome, Policy, QuotaStatuses, Stepped, Usage, WindowUsage,
    },
    quota::MAX_REFILL_NANOS,
    redis::store::error::{StoreError, StoreErrorKind},
};

/// The whole numbers of the script's reply, in order.
struct Numbers<'a>(&'a [u8]);

/// What a script says of a subject; `None` if it did nothing, because the general script has to decide.
pub(super) type SubjectReply = Result<Option<AnsweredOps>, StoreError>;

/// Reads what a script says of subjects, of which each asked for this many operations, and may have
/// said something about a lease.
pub(super) fn subjects(reply: &Value, plan: &TierPlan, ops: &[(usize, bool)]) -> Vec<SubjectReply> {
    let texts = match reply {
        Value::Array(texts) if ops.len() > 1 && texts.len() == ops.len() => texts,
        text if ops.len() == 1 => std::slice::from_ref(text),
        _ => return ops.iter().map(|_| Err(strange())).collect(),
    };
    let each = texts.iter().zip(ops);
    each.map(|(text, ops)| subject(text, plan, *ops)).collect()
}

fn subject(text: &Value, plan: &TierPlan, ops: (usize, bool)) -> SubjectReply {
    let Value::BulkString(text) = text else {
        return Err(strange());
    };
    match text.as_slice() {
        [] => Ok(None),
        [b'-', error @ ..] => Err(StoreError::of_subject(&String::from_utf8_lossy(error))),
        text => answered(text, plan, ops).map(Some).ok_or_else(strange),
    }
}

fn answered(text: &[u8], plan: &TierPlan, (ops, has_lease): (usize, bool)) -> Option<AnsweredOps> {
    if !has_lease {
        let (rows, rest) = rows(text, plan, ops)?;
        return Some(AnsweredOps {
            rows,
            lease: None,
            hold: rest.hold()?,
        });
    }
    let (text, lease) = LeaseReply::split(text)?;
    let (rows, rest) = rows(text, plan, ops)?;
    rest.0.is_empty().then(|| AnsweredOps {
        rows,
        lease: Some(Box::new(lease)),
        hold: None,
    })
}

/// Reads what a store says of this many operations, and of a lease if it was told of one.
pub(super) fn of_store(reply: &Reply, plan: &TierPlan, ops: (usize, bool)) -> SubjectAnswer {
    let answered = answered(reply.as_bytes(), plan, ops);
    answered.ok_or_else(|| {
        StoreError::new(
            StoreErrorKind::ForeignData,
            "the reply is not one to this call",
        )
    })
}

/// The error of a reply that no script of ours gives.
pub(super) fn strange() -> StoreError {
    StoreError::foreign("not the script's reply")
}

/// Reads what the script says of `ops` operations of a subject, in rows of alike ones, and gives the
/// rest; `None` for what the script never says.
fn rows<'a>(
    text: &'a [u8],
    plan: &TierPlan,
    ops: usize,
) -> Option<(SmallVec<[Row; 1]>, Numbers<'a>)> {
    let mut numbers = Numbers(text);
    let time = Timestamp::from_micros(numbers.next()?);
    let mut rows = SmallVec::new();
    let mut left = ops;
    while left > 0 {
        let count = usize::try_from(numbers.next()?).ok()?;
        let first = numbers.decision(plan, time)?;
        if !(1..=left).contains(&count) {
            return None;
        }
        left -= count;
        rows.push(Row { count, first });
    }
    Some((rows, numbers))
}

impl Numbers<'_> {
    /// The rest of an answer: for how long a denial is to be held to at most, where other nodes hold
    /// units that may come back.
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

    /// `Some(None)` for a number below 0, which stands for there being none.
    fn optional(&mut self) -> Option<Option<u64>> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::try_from(i64::from_be_bytes(*number)).ok())
    }

    fn decision(&mut self, plan: &TierPlan, time: Timestamp) -> Option<Decision> {
        let denied = self.next()? == 1;
        let wait = Duration::from_micros(self.next()?);
        let charged = self.next()?;
        let blocked = Duration::from_micros(self.next()?);
        let outcome = match denied {
            true => Outcome::Denied,
            false if wait.is_zero() => Outcome::Allowed,
            false => Outcome::Delayed(wait),
        };
        let decision = Decision::new(outcome, charged, time, self.statuses(plan, time)?);
        let decision = decision.in_tier(plan.index);
        Some(if blocked.is_zero() {
            decision
        } else {
            decision.into_blocked(blocked)
        })
    }

    fn statuses(&mut self, plan: &TierPlan, time: Timestamp) -> Option<QuotaStatuses> {
        if let ([policy], [quota]) = (plan.policies.as_slice(), plan.measures.as_slice()) {
            let measure = self.measure(policy, *quota, time)?;
            return Some(QuotaStatuses::of_one(policy, &measure));
        }
        let quotas = plan.policies.iter().zip(&plan.measures);
        let measures = quotas.map(|(policy, quota)| self.measure(policy, *quota, time));
        let measures: Vec<_> = measures.collect::<Option<_>>()?;
        Some(QuotaStatuses::of_set(&plan.policies, measures.into_iter()))
    }

    fn measure(&mut self, policy: &Policy, quota: QuotaPlan, time: Timestamp) -> Option<Measure> {
        let flags = self.next()?;
        let retry_after = self.optional()?.map(nanos);
        let (standing, excess) = match quota.told {
            Told::Level(full) => {
                let used = self.level(flags)?;
                let level = Level { used, ..full };
                let excess = quota.has_soft_share && level.is_excess();
                (Usage::Level(level), excess)
            }
            Told::Stepped(step) => {
                let used = self.level(flags)?;
                let passed = time.as_nanos() % step;
                let stepped = Stepped { used, passed, step };
                let excess = quota.has_soft_share && stepped.level(policy.terms()).is_excess();
                (Usage::Stepped(stepped), excess)
            }
            Told::Window => {
                let [used, _, until_end] = [self.next()?, self.next()?, nanos(self.next()?)];
                let window = WindowUsage { used, until_end };
                (Usage::Window(window), flags & 2 > 0)
            }
            Told::Numbers => {
                let [remaining, reset_after, window] = [self.next()?, self.next()?, self.next()?];
                let standing = Usage::counted(remaining, nanos(reset_after), nanos(window));
                (standing, flags & 2 > 0)
            }
        };
        Some(Measure {
            kind: quota.kind,
            denied: flags & 1 > 0,
            retry_after,
            standing,
            excess,
        })
    }

    /// How far a bucket is from full: the nanoseconds below a microsecond stand among the flags.
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
    use super::*;
    use crate::{
        limiter::{
            Tier,
            limits::{Chosen, Limits},
        },
        quota::{IntoQuotas, Quota},
        shared::arguments::Plan,
    };

    /// A limit of ten a second.
    fn plan() -> TierPlan {
        let tiers = vec![(Tier::DEFAULT, Quota::per_second(10).into_quotas())];
        let plan = Plan::new(&Limits::new(tiers, None).expect("a good quota"));
        let plan = plan.of(Chosen::Tier(0)).expect("the default tier");
        plan.into_owned()
    }

    /// The decisions that the numbers become, for two operations under a limit of ten a second.
    fn read(numbers: &[i64]) -> Option<Vec<Decision>> {
        let plan = plan();
        let bytes = numbers.iter().flat_map(|number| number.to_be_bytes());
        let bytes: Vec<_> = bytes.collect();
        let (rows, rest) = rows(&bytes, &plan, 2)?;
        rest.hold()?;
        let row = |row: Row| {
            let all = std::iter::successors(Some(row.first), |last| Some(last.next_alike()));
            all.take(row.count)
        };
        Some(rows.into_iter().flat_map(row).collect())
    }

    #[test]
    fn operations_that_come_to_the_same_are_told_once() {
        let decisions = read(&[7, 2, 0, 0, 1, 0, 0, -1, 100_000]).expect("a reply");
        let remaining: Vec<_> = decisions.iter().map(Decision::remaining).collect();
        assert_eq!(remaining, [Some(9), Some(8)]);
        let denied = read(&[7, 2, 1, 0, 0, 0, 1, 5, 1_000_000]).expect("a reply");
        assert_eq!(denied[0].retry_after(), Some(Duration::from_micros(5)));
        assert_eq!(denied[0], denied[1]);
    }

    #[test]
    fn what_the_script_never_says_is_no_decision() {
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
        // No sum runs over, whatever is claimed to have been charged.
        assert!(read(&[7, 2, 0, 0, i64::MAX, 0, 0, -1, 0]).is_some());
    }

    #[test]
    fn each_subject_has_its_own_answer_and_its_own_error() {
        let plan = plan();
        let one = |numbers: &[i64]| {
            Value::BulkString(
                numbers
                    .iter()
                    .flat_map(|number| number.to_be_bytes())
                    .collect(),
            )
        };
        let decided = || one(&[7, 1, 0, 0, 1, 0, 0, -1, 100_000]);
        let text = |text: &str| Value::BulkString(text.into());
        let reply = Value::Array(vec![
            decided(),
            text(""),
            text("-WRONGTYPE Operation against a key"),
            text("-OOM command not allowed"),
            one(&[7, 1]),
            Value::Int(1),
        ]);
        let answers = subjects(&reply, &plan, &[(1, false); 6]);
        let kinds = answers.iter().map(|answer| match answer {
            Ok(answer) => Ok(answer.as_ref().map(|answer| answer.rows.len())),
            Err(error) => Err(error.kind()),
        });
        use StoreErrorKind::{ForeignData, OutOfMemory};
        let expected = [
            Ok(Some(1)),
            Ok(None),
            Err(ForeignData),
            Err(OutOfMemory),
            Err(ForeignData),
            Err(ForeignData),
        ];
        assert!(kinds.eq(expected), "{answers:?}");
        assert!(matches!(
            subjects(&decided(), &plan, &[(1, false)])[..],
            [Ok(Some(_))]
        ));
    }

    #[test]
    fn a_reply_of_another_number_of_subjects_answers_none_of_them() {
        let plan = plan();
        let empty = || Value::BulkString(Vec::new());
        let replies = [
            (Value::Array(vec![empty()]), 1),
            (Value::Array(vec![empty(); 3]), 2),
            (empty(), 2),
        ];
        for (reply, count) in replies {
            let answers = subjects(&reply, &plan, &vec![(1, false); count]);
            assert_eq!(answers.len(), count);
            assert!(answers.iter().all(Result::is_err), "{reply:?}");
        }
    }
}
