//! Calls: the operations of many subjects that are sent to the server at once.

use std::{future::Future, iter, mem, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    hashed_key_names::SubjectName,
    wire::{
        node_message::Takes,
        plan::Plan,
        reply::{Run, SubjectReply, SubjectResult},
    },
};
use tower_ratelimit_core::{
    decision::{Decision, Op},
    limiter::limit::Chosen,
};
use tower_ratelimit_store::error::StoreError;

/// The most runs of one call, so that it does not block the server for long.
const MAX_RUNS_PER_CALL: usize = 256;

/// The most operations of one call. Some algorithms do not decide a run of equal operations in one
/// step.
const MAX_OPS_PER_CALL: usize = 1_024;

/// The number of newest calls that are searched for one that a subject can join.
const MAX_OPEN_CALLS: usize = 8;

/// Subjects that are sent at once, all to one script and by the quotas of one tier.
pub(crate) struct BatchCall {
    pub(crate) plan: Arc<Plan>,
    pub(crate) tier: Chosen,
    /// It leaves after this time.
    pub(crate) at: Instant,
    pub(crate) subjects: SmallVec<[SubjectOps; 1]>,
    /// One for each operation of the subjects.
    waiters: Waiters,
    run_count: usize,
}

/// A call and its answers.
pub(super) type FinishedCall = (BatchCall, Vec<SubjectResult>);

/// A call that has been polled, or will be next.
pub(super) type BegunCall = BoxFuture<'static, FinishedCall>;

/// Distributes batches among the calls that are sent at one moment.
#[derive(Default)]
pub(super) struct CallBuilder {
    pub(super) most_subjects: usize,
    pub(super) calls: Vec<BatchCall>,
    /// Waiters whose deadline passed before their operation was sent.
    expired: Vec<Waiter>,
}

impl CallBuilder {
    /// Adds all operations of a batch, in as many calls as they need. Returns that number.
    pub(super) fn add(&mut self, subject: &SubjectName, mut batch: Batch, now: Instant) -> usize {
        batch.drain_expired(now, &mut self.expired);
        let mut parts = 0;
        while let Some((runs, waiters)) = batch.take(MAX_RUNS_PER_CALL, MAX_OPS_PER_CALL) {
            let ops = SubjectOps {
                subject: subject.clone(),
                runs,
                are_specialized: batch.are_specialized,
            };
            // A later part of one subject must not be sent before an earlier one.
            let open = match parts {
                0 => self.open_call(&batch, &ops),
                _ => None,
            };
            let call = match open {
                Some(at) => &mut self.calls[at],
                None => {
                    self.calls.push(BatchCall::new(&batch, now));
                    self.calls.last_mut().expect("it was just pushed")
                }
            };
            call.add(ops, waiters);
            parts += 1;
        }
        parts
    }

    fn open_call(&self, batch: &Batch, subject: &SubjectOps) -> Option<usize> {
        let (runs, ops) = (subject.runs.len(), subject.ops());
        let mut calls = self.calls.iter().enumerate().rev().take(MAX_OPEN_CALLS);
        let (at, call) = calls.find(|(_, call)| call.accepts(batch, subject))?;
        let has_room = call.subjects.len() < self.most_subjects
            && call.run_count + runs <= MAX_RUNS_PER_CALL
            && call.waiters.len() + ops <= MAX_OPS_PER_CALL;
        has_room.then_some(at)
    }

    /// Fails the operations whose deadline passed before they were sent.
    pub(super) fn fail_expired(&mut self) {
        for waiter in self.expired.drain(..) {
            waiter.reply(Err(StoreError::unsent()));
        }
    }
}

impl BatchCall {
    fn new(batch: &Batch, at: Instant) -> Self {
        Self {
            plan: Arc::clone(&batch.plan),
            tier: batch.tier,
            at,
            subjects: SmallVec::new(),
            waiters: Waiters::new(),
            run_count: 0,
        }
    }

    /// Whether the same script decides the subject by the same quotas.
    fn accepts(&self, batch: &Batch, subject: &SubjectOps) -> bool {
        let mut subjects = self.subjects.iter();
        batch.is_of(&self.plan, self.tier)
            && subjects
                .next()
                .is_some_and(|first| first.are_specialized == subject.are_specialized)
    }

    fn add(&mut self, subject: SubjectOps, waiters: Waiters) {
        self.run_count += subject.runs.len();
        self.subjects.push(subject);
        self.waiters.extend(waiters);
    }

    /// The latest deadline of all waiters: nobody waits any more from then on.
    #[cfg(feature = "redis")]
    pub(crate) fn last_deadline(&self) -> Instant {
        let deadlines = self.waiters.iter().map(|waiter| waiter.deadline);
        deadlines.max().unwrap_or(self.at)
    }

    /// Delivers the server's answers, one for each subject, to the waiters.
    pub(super) fn deliver(self, answers: Vec<SubjectResult>) {
        let mut waiters = self.waiters.into_iter();
        for (subject, answer) in self.subjects.iter().zip(answers) {
            let mut own = waiters.by_ref().take(subject.ops());
            match answer {
                Ok(SubjectReply { runs, .. }) => {
                    for Run {
                        count, decision, ..
                    } in runs
                    {
                        let each = own.by_ref().take(count);
                        each.zip(iter::repeat_n(decision, count))
                            .for_each(|(waiter, decision)| waiter.reply(Ok(decision)));
                    }
                }
                Err(error) => own
                    .by_ref()
                    .for_each(|waiter| waiter.reply(Err(error.clone()))),
            }
            own.for_each(drop);
        }
    }
}

/// The waiters of operations, in order.
type Waiters = SmallVec<[Waiter; 1]>;

pub(crate) type OpReply = Result<Decision, StoreError>;

#[derive(Debug)]
pub(super) struct Waiter {
    deadline: Instant,
    reply: oneshot::Sender<OpReply>,
}

impl Waiter {
    pub(super) const fn new(deadline: Instant, reply: oneshot::Sender<OpReply>) -> Self {
        Self { deadline, reply }
    }

    /// Sends the reply, unless the caller has stopped waiting.
    fn reply(self, reply: OpReply) {
        self.reply.send(reply).ok();
    }
}

/// An operation, and the quotas that decide it.
pub(crate) struct NewOp {
    pub(crate) plan: Arc<Plan>,
    pub(crate) tier: Chosen,
    pub(crate) op: Op,
    /// Whether a specialized script can decide it. Such operations have calls of their
    /// own.
    pub(crate) is_specialized: bool,
}

/// Operations of one subject that the same quotas decide, in order of arrival.
pub(super) struct Batch {
    pub(super) plan: Arc<Plan>,
    pub(super) tier: Chosen,
    /// Whether a specialized script can decide all operations so far.
    pub(super) are_specialized: bool,
    runs: Runs,
    /// One for each operation.
    waiters: Waiters,
}

impl Batch {
    pub(super) const fn new(plan: Arc<Plan>, tier: Chosen) -> Self {
        Self {
            plan,
            tier,
            are_specialized: true,
            runs: Runs::new_const(),
            waiters: Waiters::new_const(),
        }
    }

    pub(super) fn is_of(&self, plan: &Arc<Plan>, tier: Chosen) -> bool {
        self.tier == tier && Arc::ptr_eq(&self.plan, plan)
    }

    pub(super) fn add(&mut self, op: Op, is_specialized: bool, waiter: Waiter) {
        self.are_specialized &= is_specialized;
        match self.runs.last_mut() {
            Some((last, count)) if *last == op => *count += 1,
            _ => self.runs.push((op, 1)),
        }
        self.waiters.push(waiter);
    }

    /// Moves the waiters whose deadline has passed to `expired`, and drops their operations: their
    /// callers have used the fallback.
    fn drain_expired(&mut self, now: Instant, expired: &mut Vec<Waiter>) {
        let waiters = self.waiters.iter();
        let count = waiters.take_while(|waiter| waiter.deadline <= now).count();
        if count > 0 {
            expired.extend(self.waiters.drain(..count));
            take_runs(&mut self.runs, usize::MAX, count);
        }
    }

    /// Takes up to `most_runs` runs with at most `most_ops` operations in all, and their waiters;
    /// `None` if nothing is left.
    fn take(&mut self, most_runs: usize, most_ops: usize) -> Option<(Runs, Waiters)> {
        if self.waiters.is_empty() {
            return None;
        }
        if self.runs.len() <= most_runs && self.waiters.len() <= most_ops {
            return Some((mem::take(&mut self.runs), mem::take(&mut self.waiters)));
        }
        let runs = take_runs(&mut self.runs, most_runs, most_ops);
        let count: usize = runs.iter().map(|(_, count)| count).sum();
        Some((runs, self.waiters.drain(..count).collect()))
    }
}

/// Takes runs from the front, the last of them perhaps in part.
fn take_runs(runs: &mut Runs, most_runs: usize, most_ops: usize) -> Runs {
    let mut left = most_ops;
    let mut whole = 0;
    for (_, count) in runs.iter().take(most_runs) {
        if *count > left {
            break;
        }
        left -= count;
        whole += 1;
    }
    let mut taken: Runs = runs.drain(..whole).collect();
    if whole < most_runs
        && left > 0
        && let Some((op, count)) = runs.first_mut()
    {
        *count -= left;
        taken.push((Op::clone(op), left));
    }
    taken
}

/// Equal consecutive operations, and their number. Most subjects have one run.
pub(crate) type Runs = SmallVec<[(Op, usize); 1]>;

/// Operations on one subject, done one after another.
#[derive(Debug, Clone)]
pub(crate) struct SubjectOps {
    pub(crate) subject: SubjectName,
    pub(crate) runs: Runs,
    /// Whether a specialized script can decide them all.
    pub(crate) are_specialized: bool,
}

impl SubjectOps {
    pub(crate) fn ops(&self) -> usize {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    /// The most units that the operations charge together if the limit is `most` units; `None` if
    /// only the store can determine it.
    pub(crate) fn most_taken(&self, most: u64) -> Option<Takes> {
        self.runs.iter().try_fold(Takes::NONE, |sum, (op, count)| {
            let (each, largest) = match op {
                Op::Acquire(cost) | Op::Reserve(cost) if *cost > most => (0, 0),
                Op::Acquire(cost) | Op::Reserve(cost) => (*cost, *cost),
                Op::AcquireUpTo(cost) => ((*cost).min(most), 1),
                Op::Settle(cost, receipt) => (cost.saturating_sub(receipt.charged()), 1),
                Op::Peek(_) | Op::Refund(..) => (0, 0),
                _ => return None,
            };
            Some(Takes {
                units: sum.units.saturating_add(each.saturating_mul(*count as u64)),
                largest: sum.largest.max(largest),
            })
        })
    }
}

/// The calls that a store accepts now.
pub(crate) trait CallWindow: Send + Sync + 'static {
    /// The most subjects of one call, at least one.
    fn most_subjects(&self) -> usize;

    /// How long an answer takes now; `None` if it is not known.
    fn expected(&self) -> Option<Duration>;

    /// The longest wait of an operation.
    fn deadline(&self) -> Duration;
}

pub(crate) trait CallSender: Send + Sync + 'static {
    type Window: CallWindow;

    fn window(&self) -> &Self::Window;

    /// Sends a call. A specialized script can decide about all its subjects or about none. Returns one answer for each
    /// subject. An answer may split a run into several.
    fn send(&self, call: &BatchCall) -> impl Future<Output = Vec<SubjectResult>> + Send;
}
