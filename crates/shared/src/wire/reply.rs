//! Replies: the states of a subject as a script judged them, from which this node computes the decisions.
//!
//! A reply is the time of the store, runs, and perhaps the answer to a message. A run is about equal operations that followed
//! one another: how many; flags (1 denied, 2 only for the class, 4 held units follow); the units that each took; the time of
//! a block; and for each quota the state that the first of them was judged by. The script judges and charges, the meters
//! here explain: they judge the same state again, and charge it as the script did for the numbers after the operation. A
//! log is long, so a reply has its numbers instead.
//!
//! A node with a ledger keeps the states of the last reply about a key (`LastStates`): the decisions that it makes without
//! the store follow from them.

use std::{borrow::Cow, iter, mem, sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{NodeReply, StoreCall, script_plan::ReplyPlan};
use crate::mode::LeaseNumber;
use tower_ratelimit_core::{
    algorithm::{Held, Meter, State, TokenBucket, Verdict, View},
    clock::Timestamp,
    decision::{Decision, Op, Outcome, Policy, QuotaStatuses, Status, UNKNOWN},
    quota::Priority,
    small_list::SmallList,
};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

pub(crate) type SubjectResult = Result<SubjectReply, StoreError>;

/// The decisions about one subject's operations, and the reply to the message attached to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubjectReply {
    pub(crate) runs: SmallVec<[Run; 1]>,
    pub(crate) lease: Option<Box<NodeReply>>,
    /// How long a denial stays cached at most, if that is less than its own wait.
    pub(crate) hold: Option<Duration>,
}

/// The decision about each of equal consecutive operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) count: usize,
    pub(crate) decision: Decision,
    /// The state of each quota after them, as a node keeps it.
    pub(crate) states: SmallList<State, 1>,
}

/// The reply to a [`StoreCall`]: each operation's outcome, for the limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(ReplyOf);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyOf {
    /// A script's.
    Text(Vec<u8>),
    /// The reply of [`StoreCall::apply`].
    Decided(SubjectReply),
}

/// The outcome of [`StoreCall::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The reply, to be sent once the value is written.
    pub reply: Reply,
    /// The new value; `None` if it does not change, as after a denial.
    pub write: Option<Write>,
}

/// A value for a store to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write {
    /// The bytes.
    pub value: Vec<u8>,
    /// The time until the value is as good as none: in whole milliseconds, at least one. A store may
    /// keep the value for longer.
    pub expires_in: Duration,
}

impl Write {
    /// Creates a value of your own, for a [`CompareAndSwap`](crate::CompareAndSwap) used without a
    /// limiter.
    pub const fn new(value: Vec<u8>, expires_in: Duration) -> Self {
        Self { value, expires_in }
    }
}

impl StoreCall<'_> {
    /// The decision about each operation.
    #[cfg(test)]
    pub(crate) fn decisions(&self, reply: Reply) -> Result<Vec<Decision>, StoreError> {
        match self.explained(reply)?.0.0 {
            ReplyOf::Decided(answered) => {
                Ok(answered.runs.into_iter().map(|run| run.decision).collect())
            }
            ReplyOf::Text(_) => Ok(Vec::new()),
        }
    }

    /// A reply as the decision about each operation, and the answer to the message; and what a node shows from the states of
    /// each run, at once and later. Two with the same are equal, however each writes a state.
    ///
    /// # Errors
    ///
    /// [`ForeignData`](tower_ratelimit_store::StoreErrorKind::ForeignData) if it is no reply to this call.
    #[doc(hidden)]
    pub fn explained(&self, reply: Reply) -> Result<(Reply, Vec<Decision>), StoreError> {
        let plan = self.plan.of(self.tier);
        let plan = plan.ok_or_else(|| StoreError::foreign("there is no such tier"))?;
        let mut answered = of_store(reply, &plan.reply, self)?;
        let later = |run: &Run| {
            let known = LastStates::new(&plan.reply, run);
            let quotas = run.decision.quotas();
            let third = quotas.filter_map(|quota| quota.reset_after()).max();
            let third = third.unwrap_or_default() / 3;
            let third = u64::try_from(third.as_nanos()).unwrap_or_default();
            let question = Question {
                own: 0,
                cost: 1,
                class: known.class(),
            };
            [0, 1, 2].map(|thirds| known.explain(question, thirds * third).1)
        };
        let runs = answered.runs.iter().filter(|_| self.keeps_states);
        let later = runs.flat_map(later).collect();
        let single = |run: Run| {
            let (count, states) = (run.count, SmallList::default());
            let single = Run {
                count: 1,
                states,
                ..run
            };
            iter::repeat_n(single, count)
        };
        answered.runs = answered.runs.into_iter().flat_map(single).collect();
        Ok((Reply::decided(answered), later))
    }
}

impl Reply {
    /// The reply of the script.
    #[doc(hidden)]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(ReplyOf::Text(bytes))
    }

    pub(crate) const fn decided(answered: SubjectReply) -> Self {
        Self(ReplyOf::Decided(answered))
    }

    /// The store's answer to the message of the call, which had one.
    #[doc(hidden)]
    pub fn to_message(&self) -> Option<NodeReply> {
        match &self.0 {
            ReplyOf::Text(text) => NodeReply::split(text).map(|(_, answer)| answer),
            ReplyOf::Decided(answered) => answered.lease.as_deref().copied(),
        }
    }
}

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

/// All that a node knows of a key: the states of its quotas after a call, with the units that the store counts as used.
/// Later numbers are those of the meters.
#[derive(Debug)]
pub(crate) struct LastStates {
    plan: Arc<ReplyPlan>,
    /// The store's time of the call.
    at: Timestamp,
    states: SmallList<State, 1>,
}

/// A request for `cost` units by a class, while this node has `own` more units in use than the store counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) own: i64,
    pub(crate) cost: u64,
    pub(crate) class: Priority,
}

/// A charge of a lease by one bucket: all that its decision follows from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charged {
    /// The instant at which the bucket was full as the store knew it, and the time now.
    full_at: u64,
    at: Timestamp,
    /// The units that this node has in use and the store does not count.
    own: i64,
    lease: LeaseNumber,
}

impl Charged {
    /// The decision about `charged` units by the only quota of the default tier.
    #[inline(always)]
    pub(crate) fn decision(self, charged: u64, of: (&Policy, &TokenBucket)) -> Decision {
        let ((policy, bucket), now) = (of, self.at.as_nanos());
        let used = bucket.used(bucket.moved(self.full_at, now, self.own), now);
        let quotas = QuotaStatuses::of_one(policy, bucket.status(used, now));
        Decision::new(Outcome::Allowed, charged, self.at, quotas).by_lease(charged, self.lease)
    }
}

impl LastStates {
    pub(crate) fn new(plan: &Arc<ReplyPlan>, run: &Run) -> Self {
        Self {
            plan: Arc::clone(plan),
            at: run.decision.decided_at(),
            states: run.states.clone(),
        }
    }

    /// The unused quotas of a key without a value in the store.
    pub(crate) fn fresh(plan: &Arc<ReplyPlan>, at: Timestamp) -> Self {
        Self {
            plan: Arc::clone(plan),
            at,
            states: SmallList::defaults(plan.meters.len()),
        }
    }

    pub(crate) fn class(&self) -> Priority {
        self.plan.class
    }

    /// The store's time after so many nanoseconds.
    pub(crate) const fn time(&self, passed: u64) -> Timestamp {
        Timestamp::from_micros(self.at.as_micros().saturating_add(passed / 1_000))
    }

    fn quotas(&self) -> impl Iterator<Item = (&Meter, &State)> {
        self.plan.meters.iter().zip(self.states.as_slice())
    }

    /// The verdict after `passed`, and the decision that charges nothing. A cost never fits, too, if only the store
    /// knows when it fits.
    pub(crate) fn explain(&self, question: Question, passed: u64) -> (Verdict, Decision) {
        let (at, mut all) = (self.time(passed), Verdict::FITS);
        let statuses = self.statuses(question, at).map(|(verdict, status)| {
            all = all.and(verdict);
            status
        });
        let statuses = QuotaStatuses::of_limit(&self.plan.policies, statuses);
        let outcome = if all.fits() {
            Outcome::Allowed
        } else {
            Outcome::Denied
        };
        let mut decision = Decision::new(outcome, 0, at, statuses).in_tier(self.plan.index);
        if !question.class.is_critical() {
            decision.set_class(question.class, false);
        }
        (all, decision)
    }

    fn statuses(
        &self,
        Question { own, cost, class }: Question,
        at: Timestamp,
    ) -> impl Iterator<Item = (Verdict, Status)> {
        let (now, view) = (at.as_nanos(), View { class, held: None });
        self.quotas().map(move |(meter, state)| {
            let state = meter.moved(state, now, own);
            let verdict = match meter.verdict(&state, now, cost, view) {
                // Only the store charges a soft share, and has the whole of a log.
                Verdict::After(_) if meter.has_extra(class) || meter.has_bytes() => Verdict::Never,
                verdict => verdict,
            };
            (verdict, meter.explain(&state, now, verdict, view))
        })
    }

    /// The only quota after `passed` with `own` more units in use, if it is a bucket.
    #[inline]
    pub(crate) fn bucket_later(
        &self,
        own: i64,
        passed: u64,
        lease: LeaseNumber,
    ) -> Option<Charged> {
        let [State::Instant(full_at)] = *self.states.as_slice() else {
            return None;
        };
        Some(Charged {
            full_at,
            at: self.time(passed),
            own,
            lease,
        })
    }

    /// Whether all quotas are unused after `passed`. A sliding window counts as used until its newest slice has left it: asked
    /// of all accounts of a node at once, it looks at no other slice.
    pub(crate) fn is_fresh(&self, passed: u64) -> bool {
        let now = self.time(passed).as_nanos();
        let mut quotas = self.quotas();
        quotas.all(|(meter, state)| meter.lasts(state, now, View::WHOLE) == 0)
    }

    /// The time until the bucket at this place is full, from the reply on, after which it granted units. From then on units
    /// get lost: held units count only once they are spent. `None` unless the quota is a bucket.
    pub(crate) fn until_full(
        &self,
        place: usize,
        reply: &NodeReply,
        granted: u32,
    ) -> Option<Duration> {
        let (meter, state) = self.quotas().nth(place)?;
        meter.leased_interval()?;
        let own = u64::from(reply.units.saturating_sub(granted));
        let (held, at) = (
            negative(reply.others.saturating_add(own)),
            self.at.as_nanos(),
        );
        let nanos = meter.reset_after(&meter.moved(state, at, held), at, View::WHOLE);
        Some(Duration::from_micros(nanos.div_ceil(1_000)))
    }

    /// Adds units to those that the decision has left.
    pub(crate) fn give_back(plan: &Arc<ReplyPlan>, run: &mut Run, units: u64) {
        if units == 0 {
            return;
        }
        let known = Self::new(plan, run);
        let question = Question {
            own: negative(units),
            cost: 0,
            class: plan.class,
        };
        let statuses = known.statuses(question, known.at);
        run.decision.remeasure(statuses.map(|(_, status)| status));
    }
}

fn negative(units: u64) -> i64 {
    0_i64.saturating_sub_unsigned(units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::script_plan::Plan;
    use tower_ratelimit_core::{
        limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
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
