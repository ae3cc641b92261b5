//! Replies: the states of a subject as a script judged them, from which this node computes the decisions.
//!
//! A reply is the time of the store, runs, and perhaps the answer to a message. A run is about equal operations that followed
//! one another: how many; flags (1 denied, 2 only for the class, 4 held units follow); the units that each took; the time of
//! a block; and for each quota the state that the first of them was judged by. The script judges and charges, the meters
//! here explain: they judge the same state again, and charge it as the script did for the numbers after the operation. A
//! log is long, so a reply has its numbers instead.

use std::{borrow::Cow, mem, time::Duration};

use smallvec::SmallVec;

use super::{Reply, ReplyOf, StoreCall, node_message::NodeReply, plan::ReplyPlan};
use crate::batching::{Run, SubjectReply, SubjectResult};
use tower_ratelimit_core::{
    algorithm::{Held, Meter, State, Verdict, View},
    clock::Timestamp,
    decision::{Decision, Op, Outcome, QuotaStatuses, Status, UNKNOWN},
    small_list::SmallList,
};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

/// A script's reply about one subject; `None` if a specialized script did nothing and the general one decides.
pub(crate) type ScriptResult = Result<Option<SubjectReply>, StoreError>;

/// A flag of a run.
const DENIED: u64 = 1;
const ONLY_CLASS: u64 = 2;
const HELD_FOLLOW: u64 = 4;

/// Reads a script's reply to a call about one subject; `None` for a reply that no script sends.
pub(crate) fn read_text(
    text: &[u8],
    plan: &ReplyPlan,
    call: &StoreCall<'_>,
) -> Option<SubjectReply> {
    let (text, lease) = if call.message.is_some() {
        let (text, lease) = NodeReply::split(text)?;
        (text, Some(Box::new(lease)))
    } else {
        (text, None)
    };
    let mut numbers = Numbers(text);
    let mut subject = ToldSubject {
        plan,
        keeps_states: call.keeps_states,
        time: Timestamp::from_micros(numbers.next()?),
        held: SmallVec::new(),
    };
    let mut runs = SmallVec::new();
    for (op, times) in call.runs {
        let mut left = *times;
        while left > 0 {
            left = left.checked_sub(subject.read_run(&mut numbers, op, left, &mut runs)?)?;
        }
    }
    let hold = if numbers.0.is_empty() {
        None
    } else {
        let micros = numbers.next().filter(|micros| *micros > 0)?;
        Some(Duration::from_micros(micros))
    };
    let is_whole = numbers.0.is_empty() && (lease.is_none() || hold.is_none());
    is_whole.then_some(SubjectReply { runs, lease, hold })
}

/// Reads a store's reply to a call.
pub(crate) fn of_store(reply: Reply, plan: &ReplyPlan, call: &StoreCall<'_>) -> SubjectResult {
    let answered = match reply.0 {
        ReplyOf::Text(text) => read_text(&text, plan, call),
        ReplyOf::Decided(answered) => {
            let decided: usize = answered.runs.iter().map(|run| run.count).sum();
            let count: usize = call.runs.iter().map(|(_, times)| times).sum();
            let is_whole = decided == count && answered.lease.is_some() == call.message.is_some();
            is_whole.then_some(answered)
        }
    };
    answered.ok_or_else(|| {
        StoreError::new(
            StoreErrorKind::ForeignData,
            "the reply is not one to this call",
        )
    })
}

/// The error for a reply that no script of this crate sends.
pub(crate) fn strange() -> StoreError {
    StoreError::foreign("not the script's reply")
}

/// The decision of a store about one operation: its outcome and charge, whether only the class of the request is denied, the
/// time until the block of the subject ends, and the numbers of each quota.
pub(crate) fn decision(
    plan: &ReplyPlan,
    time: Timestamp,
    (outcome, charged): (Outcome, u64),
    (shed, blocked): (bool, Duration),
    statuses: impl Iterator<Item = Status>,
) -> Decision {
    let quotas = QuotaStatuses::of_limit(&plan.policies, statuses);
    let decision = Decision::new(outcome, charged, time, quotas);
    let mut decision = decision.in_tier(plan.index);
    if !plan.class.is_critical() {
        decision.set_class(plan.class, shed);
    }
    if blocked.is_zero() {
        decision
    } else {
        decision.into_blocked(blocked)
    }
}

/// The run of equal decisions that left the quotas in these states, if it is to have them.
pub(crate) fn run_of<'s>(
    plan: &ReplyPlan,
    held: &[Option<Held>],
    (count, decision): (usize, Decision),
    states: Option<impl ExactSizeIterator<Item = Cow<'s, State>>>,
) -> Run {
    let now = decision.decided_at().as_nanos();
    let states = states.map(|states| {
        let quotas = plan.meters.iter().zip(decision.statuses()).zip(states);
        let states = quotas.enumerate().map(|(place, ((meter, status), state))| {
            let view = View::of(plan.class, held, place);
            meter.kept(state, now, view, status)
        });
        SmallList::of_exact(states)
    });
    Run {
        count,
        states: states.unwrap_or_default(),
        decision,
    }
}

/// A subject while its reply is read.
struct ToldSubject<'a> {
    plan: &'a ReplyPlan,
    keeps_states: bool,
    time: Timestamp,
    /// The units of each quota that nodes hold; empty if they hold none.
    held: SmallVec<[Option<Held>; 1]>,
}

/// One quota in a row.
enum Told {
    State(State),
    /// The verdict on the operation, and the numbers of a log after it.
    Log(Verdict, Status),
}

impl ToldSubject<'_> {
    /// Reads the next run, of at most `most` operations. Returns how many it has.
    fn read_run(
        &mut self,
        numbers: &mut Numbers<'_>,
        op: &Op,
        most: usize,
        runs: &mut SmallVec<[Run; 1]>,
    ) -> Option<usize> {
        let count = usize::try_from(numbers.next()?).ok()?;
        if !(1..=most).contains(&count) {
            return None;
        }
        let [flags, charged, blocked] = [numbers.next()?, numbers.next()?, numbers.next()?];
        if flags & HELD_FOLLOW > 0 {
            self.held = numbers.held(self.plan.meters.len())?;
        }
        let meters = self.plan.meters.iter();
        let told = meters.map(|meter| self.told(numbers, meter));
        let mut told: SmallVec<[Told; 1]> = told.collect::<Option<_>>()?;
        let run = (flags, charged, Duration::from_micros(blocked));
        // The state is the one before the first operation.
        let times = if charged > 0 { count } else { 1 };
        for left in (0..times).rev() {
            let decision = self.decide(&mut told, op, run)?;
            let states = told.iter_mut().map(|told| match told {
                Told::State(state) if left == 0 => Cow::Owned(mem::take(state)),
                Told::State(state) => Cow::Borrowed(&*state),
                Told::Log(..) => Cow::Owned(State::FRESH),
            });
            let decided = (count / times, decision);
            let states = self.keeps_states.then_some(states);
            runs.push(run_of(self.plan, &self.held, decided, states));
        }
        Some(count)
    }

    fn told(&self, numbers: &mut Numbers<'_>, meter: &Meter) -> Option<Told> {
        if !meter.has_bytes() {
            let now = self.time.as_nanos();
            let state = meter.state_of_numbers(now, || numbers.next())?;
            return Some(Told::State(state));
        }
        let [used, reset_after] = [numbers.next()?, numbers.next()?];
        let verdict = match numbers.optional()? {
            Some(0) => Verdict::FITS,
            wait => wait.map_or(Verdict::Never, |wait| Verdict::After(nanos(wait))),
        };
        let window = numbers.optional()?.map_or(UNKNOWN, nanos);
        let numbers = [used, nanos(reset_after), window];
        let status = meter.status_of_log(self.plan.class, numbers);
        Some(Told::Log(verdict, verdict.explain(status)))
    }

    /// The decision about an operation. Leaves the states as it does.
    fn decide(
        &self,
        told: &mut [Told],
        op: &Op,
        (flags, charged, blocked): (u64, u64, Duration),
    ) -> Option<Decision> {
        let (now, mut all) = (self.time.as_nanos(), Verdict::FITS);
        let cost = match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::Peek(cost) | Op::Deny(cost) => *cost,
            Op::Hit(cost) | Op::Spend(cost) => *cost,
            // One unit is denied if none is left.
            Op::AcquireUpTo(most) if charged == 0 => (*most).min(1),
            Op::AcquireUpTo(_) => charged,
            _ => 0,
        };
        let quotas = self.plan.meters.iter().zip(told).enumerate();
        let statuses = quotas.map(|(place, (meter, told))| {
            let view = View::of(self.plan.class, &self.held, place);
            let state = match told {
                Told::Log(verdict, status) => {
                    all = all.and(*verdict);
                    return *status;
                }
                Told::State(state) => state,
            };
            let verdict = match op {
                Op::Count(cost) => meter.over(state, now, *cost, view),
                _ => meter.verdict(state, now, cost, view),
            };
            all = all.and(verdict);
            match op {
                Op::Acquire(_) | Op::Reserve(_) | Op::AcquireUpTo(_) if charged > 0 => {
                    meter.charge(state, now, 0, charged, view);
                }
                Op::Hit(cost) => meter.charge(state, now, 0, *cost, view),
                Op::Spend(cost) => meter.spend(state, now, *cost, view),
                _ => {}
            }
            meter.explain(state, now, verdict, view)
        });
        let statuses: SmallVec<[Status; 2]> = statuses.collect();
        let is_denied = flags & DENIED > 0;
        let outcome = match all {
            Verdict::Fits { wait } if wait > 0 && !matches!(op, Op::Hit(_) | Op::Spend(_)) => {
                Outcome::Delayed(Duration::from_micros(wait.div_ceil(1_000)))
            }
            Verdict::Fits { .. } => Outcome::Allowed,
            Verdict::After(_) | Verdict::Never => Outcome::Denied,
        };
        let by = (flags & ONLY_CLASS > 0, blocked);
        let statuses = statuses.into_iter();
        let decision = || decision(self.plan, self.time, (outcome, charged), by, statuses);
        (is_denied == (outcome == Outcome::Denied)).then(decision)
    }
}

/// The whole numbers of the script's reply, in order.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u64> {
        self.optional()?
    }

    /// Reads a number; `Some(None)` for one below 0, which stands for none.
    fn optional(&mut self) -> Option<Option<u64>> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::try_from(i64::from_be_bytes(*number)).ok())
    }

    /// Reads the units of so many quotas that nodes hold.
    fn held(&mut self, quotas: usize) -> Option<SmallVec<[Option<Held>; 1]>> {
        let units = (0..quotas).map(|_| {
            let [units, micros, rest] = [self.next()?, self.next()?, self.next()?];
            Some((units, nanos(micros).saturating_add(rest)))
        });
        let units: SmallVec<[_; 2]> = units.collect::<Option<_>>()?;
        let until = nanos(self.next()?);
        let held = |(units, nanos)| {
            (units > 0).then_some(Held {
                units,
                nanos,
                until,
            })
        };
        Some(units.into_iter().map(held).collect())
    }
}

const fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::plan::Plan;
    use tower_ratelimit_core::{
        limiter::tier_set::{Chosen, LimitTerms, TierSet},
        quota::Quota,
    };

    /// A limit of ten a second.
    fn plan() -> Plan {
        let limits = TierSet::new(LimitTerms::of(Quota::per_second(10)));
        Plan::new(&limits.expect("a good quota"))
    }

    /// Reads a reply about two operations under a limit of ten a second.
    fn read(numbers: &[i64]) -> Option<Vec<Decision>> {
        let bytes = numbers.iter().flat_map(|number| number.to_be_bytes());
        let bytes: Vec<_> = bytes.collect();
        let (plan, ops) = (plan(), [(Op::Acquire(1), 2)]);
        let call = StoreCall::new(&plan, Chosen::Tier(0), &ops);
        call.decisions(Reply::from_bytes(bytes)).ok()
    }

    #[test]
    fn operations_with_one_outcome_share_one_row() {
        let decisions = read(&[7, 2, 0, 1, 0, 0, 0]).expect("a reply");
        let remaining: Vec<_> = decisions.iter().map(Decision::remaining).collect();
        assert_eq!(remaining, [Some(9), Some(8)]);
        let denied = read(&[7, 2, 1, 0, 0, 900_005, 0]).expect("a reply");
        assert_eq!(denied[0].retry_after(), Some(Duration::from_micros(5)));
        assert_eq!(denied[0], denied[1]);
    }

    #[test]
    fn only_rows_of_a_call_that_requests_states_have_them() {
        let (plan, ops) = (plan(), [(Op::Acquire(1), 1)]);
        let call = StoreCall::new(&plan, Chosen::Tier(0), &ops);
        let bytes = [7, 1, 0, 1, 0, 0, 0_i64].map(i64::to_be_bytes).concat();
        for (call, states) in [(call, 0), (call.with_states(), 1)] {
            let applied = call.apply(None, Timestamp::from_micros(7)).expect("one");
            for reply in [Reply::from_bytes(bytes.clone()), applied.reply] {
                let plan = plan.of(call.tier).expect("a tier");
                let answered = of_store(reply, &plan.reply, &call).expect("a reply");
                assert_eq!(answered.runs[0].states.as_slice().len(), states);
            }
        }
    }

    #[test]
    fn a_reply_that_no_script_sends_is_an_error() {
        let one = [1, 0, 1, 0, 100_000, 0];
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
            let level = [&[7, 2], &one[1..4], &[used, 999]].concat();
            assert!(read(&level).is_none(), "{used} microseconds from full");
        }
        let contradicts = [&[7, 2, 1, 0, 0], &one[4..]].concat();
        assert!(read(&contradicts).is_none(), "denied, and yet it fits");
        let full = [&[7, 2], &one[1..4], &[1_000_000, 0]].concat();
        assert!(read(&full).is_none(), "allowed, and yet it does not fit");
        // No sum overflows, whatever the reply has as charged.
        assert!(read(&[7, 2, 0, i64::MAX, 0, 0, 0]).is_none());
    }
}
