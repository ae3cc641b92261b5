//! Batching: operations that arrive while calls are in flight share the next call.
//!
//! In: an operation on a subject, with its plan, its tier and a deadline. Out: its answer, through a channel. In between
//! are calls, which a `CallSender` makes; that of a limiter is in `limiter.rs`.
//!
//! 1. `submit` adds the operation to the queues at the store's home (`SubjectQueues`). Each subject has a batch for each tier
//!    and plan, in which equal operations that follow one another are one run with a count.
//! 2. A caller that finds its queue idle begins its call. The dispatcher at the home sends all others, in rounds. A round
//!    begins when an operation arrives that is not covered by the next one, when a call ends, or at the time that the last
//!    round has set. It sends subjects that have no call in flight: all of them while the server is hardly busy or has just answered, else those that fill calls.
//!    A subject that has waited too long for an answer about itself leaves in a further call.
//! 3. `CallBuilder` distributes the batches: subjects share a call if they have the plan and the tier in common, up to its
//!    bounds of subjects, runs and operations. Operations whose deadline passed while they waited fail unsent.
//! 4. A call ends with one answer for each subject. The next round is sent before the answers are delivered, so that the
//!    server works while the answered requests continue.
//!
//! Example: a thousand equal requests of one key arrive at once. The first leaves alone. The others become one run of 999,
//! and leave in one call when it is answered.

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    collections::{HashMap, VecDeque, hash_map::Entry},
    future::{Future, poll_fn, ready},
    iter, mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, lazy},
    stream::FuturesUnordered,
};
use smallvec::{SmallVec, smallvec};
use tokio::{
    runtime::{Handle, Id},
    sync::{Notify, oneshot},
    task::unconstrained,
    time::{Instant, sleep_until},
};

use super::{
    prehashed_key_names::{SubjectMap, SubjectName},
    wire::{
        Takes,
        reply::{Run, SubjectReply, SubjectResult},
        script_plan::Plan,
    },
};
use tower_ratelimit_core::{
    decision::{Decision, Op},
    limiter::limits_in_force::Chosen,
    lock::unpoisoned,
};
use tower_ratelimit_store::error::StoreError;

/// The shortest time that operations wait for an answer before they are sent without it.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Queues operations by subject, and sends them in batches.
///
/// The first operation of a subject is sent at once while few subjects are in flight. Otherwise it
/// waits for the next answer, and shares one call with the other subjects that wait. Operations on
/// a subject with a call in flight wait for its answer and then leave together, in order of arrival
/// within each tier; equal consecutive operations are one run. If two answers in a row would take
/// nearly the deadline, further calls are sent meanwhile. The server runs the calls of a subject in
/// the order in which they are sent, so no answer is guessed. A waiting operation costs the memory
/// of its waker only, and any number can wait.
///
/// Calls are sent by a dispatcher at the home of the store: its own thread, which has one queue for all callers. The caller
/// that finds its queue idle begins the call itself. A store without a thread lives on the runtimes of its callers. Each of
/// them then has a queue, as nobody else drives it.
pub(super) struct Batcher<S> {
    sender: S,
    /// One entry for each runtime with a dispatcher.
    queues: Mutex<HashMap<Id, SubjectQueues>>,
}

impl<S> Batcher<S> {
    pub(super) fn new(sender: S) -> Arc<Self> {
        Arc::new(Self {
            sender,
            queues: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, SubjectQueues>> {
        unpoisoned(self.queues.lock())
    }
}

impl<S: CallSender> Batcher<S> {
    /// Queues `op` within a tokio runtime. The operation is done even if nobody waits for the answer, unless its deadline
    /// passes before it is sent.
    pub(super) fn submit(
        self: &Arc<Self>,
        subject: SubjectName,
        op: NewOp,
        now: Instant,
    ) -> oneshot::Receiver<OpReply> {
        let (reply, receiver) = oneshot::channel();
        let deadline = now + self.sender.window().deadline();
        let waiter = Waiter { deadline, reply };
        let runtime = Handle::current().id();
        let mut all = self.lock();
        let has_dispatcher = all.contains_key(&runtime);
        let queues = all.entry(runtime).or_default();
        let most_subjects = self.sender.window().most_subjects();
        let was_idle = queues.is_empty();
        let has_work = queues.add((subject, op), waiter, now, most_subjects);
        let mut first = None;
        if was_idle {
            queues.batcher = Some(Arc::clone(self) as _);
            first = queues.dispatch_first(now);
        }
        let mut arrival = has_work.then(|| Arc::clone(&queues.arrival));
        drop(all);
        if let Some(call) = first {
            let begun = self.begin(call);
            // The dispatcher may have ended by a panic meanwhile, and another one may have begun.
            if let Some(queues) = self.lock().get_mut(&runtime) {
                queues.begun.push(begun);
                arrival = Some(Arc::clone(&queues.arrival));
            }
        }
        if let Some(arrival) = arrival {
            arrival.notify_one();
            if !has_dispatcher {
                let dispatcher = Dispatcher {
                    batcher: Arc::downgrade(self),
                    runtime,
                    arrival,
                };
                tokio::spawn(dispatcher.run());
            }
        }
        receiver
    }

    /// Polls a call once, so that it leaves now, with the node's message of this moment.
    fn begin(self: &Arc<Self>, call: BatchCall) -> BegunCall {
        let mut begun = send(Arc::clone(self), call).boxed();
        // The dispatcher registers the waker that counts. A caller that has used up its budget would send nothing.
        let mut no_waker = Context::from_waker(Waker::noop());
        let poll = || pin!(unconstrained(begun.as_mut())).poll(&mut no_waker);
        let poll = AssertUnwindSafe(poll);
        match catch_unwind(poll) {
            Ok(Poll::Ready(finished)) => ready(finished).boxed(),
            Ok(Poll::Pending) => begun,
            // The dispatcher ends with it, as it does when a store panics later.
            Err(panic) => lazy(|_| -> FinishedCall { resume_unwind(panic) }).boxed(),
        }
    }
}

impl<S> Drop for Batcher<S> {
    /// Ends the dispatchers.
    fn drop(&mut self) {
        for queues in self.lock().values() {
            queues.arrival.notify_one();
        }
    }
}

/// Sends the calls of a limiter that were submitted on one runtime, until the limiter is dropped. Fails all waiters when
/// the task is dropped.
struct Dispatcher<S: CallSender> {
    batcher: Weak<Batcher<S>>,
    runtime: Id,
    arrival: Arc<Notify>,
}

impl<S: CallSender> Dispatcher<S> {
    async fn run(self) {
        let mut calls = CallBuilder::default();
        let mut in_flight = FuturesUnordered::new();
        let (mut finished, mut answered) = (Vec::new(), Vec::new());
        loop {
            // While nothing waits and no call is in flight, the limiter can end.
            self.arrival.notified().await;
            let Some(batcher) = self.batcher.upgrade() else {
                return;
            };
            loop {
                let until = self.round(&batcher, &finished, (&mut calls, &mut in_flight));
                for call in calls.calls.drain(..) {
                    in_flight.push(send(Arc::clone(&batcher), call).boxed());
                }
                calls.fail_expired();
                // The next calls are sent before the answers are delivered, so that the server works
                // while the answered requests continue.
                mem::swap(&mut finished, &mut answered);
                poll_all(&mut in_flight, &mut finished).await;
                for (call, answers) in answered.drain(..) {
                    call.deliver(answers);
                }
                if !finished.is_empty() {
                    continue;
                }
                // A call that is leaving may be with its caller, while operations behind it wait already.
                if in_flight.is_empty() && until.is_none() {
                    break;
                }
                self.wait(&mut in_flight, &mut finished, until).await;
            }
        }
    }

    /// Moves what can be sent now into `calls`. Returns the time of the next round, unless something happens before.
    fn round(
        &self,
        batcher: &Batcher<S>,
        finished: &[FinishedCall],
        (calls, in_flight): (&mut CallBuilder, &mut FuturesUnordered<BegunCall>),
    ) -> Option<Instant> {
        let window = batcher.sender.window();
        let mut round = Round {
            has_finished: !finished.is_empty(),
            most_subjects: window.most_subjects(),
            for_others: SHORTEST_WAIT,
            for_own: None,
        };
        if let Some(expected) = window.expected() {
            // After a quarter of the deadline that an answer leaves over, most of the rest remains for
            // delays. A sudden delay shows only when an answer is late, so the wait is bounded even if
            // answers have been immediate so far.
            let spare = window.deadline().saturating_sub(expected) / 4;
            round.for_others = (expected / 8).max(SHORTEST_WAIT);
            round.for_own = Some(spare.max(SHORTEST_WAIT));
        }
        let mut all = batcher.lock();
        let queues = all.get_mut(&self.runtime)?;
        for (call, _) in finished {
            queues.finish(call);
        }
        let until = queues.dispatch(&round);
        mem::swap(&mut queues.calls, calls);
        in_flight.extend(queues.begun.drain(..));
        if queues.is_empty() {
            queues.batcher = None;
        }
        until
    }

    /// Waits until a call ends, there may be a call to send, or the time is `until`.
    async fn wait(
        &self,
        in_flight: &mut FuturesUnordered<impl Future<Output = FinishedCall>>,
        finished: &mut Vec<FinishedCall>,
        until: Option<Instant>,
    ) {
        let mut arrival = pin!(self.arrival.notified());
        let mut timer = pin!(until.map(sleep_until));
        poll_fn(|cx| {
            while let Poll::Ready(Some(call)) = in_flight.poll_next_unpin(cx) {
                finished.push(call);
            }
            if !finished.is_empty() {
                return Poll::Ready(());
            }
            if let Some(timer) = timer.as_mut().as_pin_mut()
                && timer.poll(cx).is_ready()
            {
                return Poll::Ready(());
            }
            arrival.as_mut().poll(cx)
        })
        .await;
    }
}

async fn send<S: CallSender>(batcher: Arc<Batcher<S>>, call: BatchCall) -> FinishedCall {
    let answers = batcher.sender.send(&call).await;
    (call, answers)
}

/// Polls every call once, so that new ones are sent, in order.
async fn poll_all(
    in_flight: &mut FuturesUnordered<impl Future<Output = FinishedCall>>,
    finished: &mut Vec<FinishedCall>,
) {
    let poll = poll_fn(|cx| {
        while let Poll::Ready(Some(call)) = in_flight.poll_next_unpin(cx) {
            finished.push(call);
        }
        Poll::Ready(())
    });
    // A task that has used up its budget would send some of them later, behind other calls.
    unconstrained(poll).await;
}

impl<S: CallSender> Drop for Dispatcher<S> {
    fn drop(&mut self) {
        // The runtime was shut down, or a store has panicked. Dropping the queues fails their waiters
        // and may wake them, so the lock is released first.
        let batcher = self.batcher.upgrade();
        let queues = batcher.and_then(|batcher| batcher.lock().remove(&self.runtime));
        drop(queues);
    }
}

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
type FinishedCall = (BatchCall, Vec<SubjectResult>);

/// A call that has been polled, or will be next.
type BegunCall = BoxFuture<'static, FinishedCall>;

/// Distributes batches among the calls that are sent at one moment.
#[derive(Default)]
struct CallBuilder {
    most_subjects: usize,
    calls: Vec<BatchCall>,
    /// Waiters whose deadline passed before their operation was sent.
    expired: Vec<Waiter>,
}

impl CallBuilder {
    /// Adds all operations of a batch, in as many calls as they need. Returns that number.
    fn add(&mut self, subject: &SubjectName, mut batch: Batch, now: Instant) -> usize {
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
                    self.calls.push(BatchCall {
                        plan: Arc::clone(&batch.plan),
                        tier: batch.tier,
                        at: now,
                        subjects: SmallVec::new(),
                        waiters: Waiters::new(),
                        run_count: 0,
                    });
                    self.calls.last_mut().expect("it was just pushed")
                }
            };
            call.run_count += ops.runs.len();
            call.subjects.push(ops);
            call.waiters.extend(waiters);
            parts += 1;
        }
        parts
    }

    /// The newest call of the same script and quotas, if the subject fits.
    fn open_call(&self, batch: &Batch, subject: &SubjectOps) -> Option<usize> {
        let (runs, ops) = (subject.runs.len(), subject.ops());
        let mut calls = self.calls.iter().enumerate().rev().take(MAX_OPEN_CALLS);
        let is_alike = |first: &SubjectOps| first.are_specialized == subject.are_specialized;
        let (at, call) = calls.find(|(_, call)| {
            batch.is_of(&call.plan, call.tier) && call.subjects.first().is_some_and(is_alike)
        })?;
        let has_room = call.subjects.len() < self.most_subjects
            && call.run_count + runs <= MAX_RUNS_PER_CALL
            && call.waiters.len() + ops <= MAX_OPS_PER_CALL;
        has_room.then_some(at)
    }

    /// Fails the operations whose deadline passed before they were sent.
    fn fail_expired(&mut self) {
        for waiter in self.expired.drain(..) {
            waiter.reply(Err(StoreError::unsent()));
        }
    }
}

impl BatchCall {
    /// The latest deadline of all waiters: nobody waits any more from then on.
    #[cfg(feature = "redis")]
    pub(crate) fn last_deadline(&self) -> Instant {
        let deadlines = self.waiters.iter().map(|waiter| waiter.deadline);
        deadlines.max().unwrap_or(self.at)
    }

    /// Delivers the server's answers, one for each subject, to the waiters.
    fn deliver(self, answers: Vec<SubjectResult>) {
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
struct Waiter {
    deadline: Instant,
    reply: oneshot::Sender<OpReply>,
}

impl Waiter {
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
struct Batch {
    plan: Arc<Plan>,
    tier: Chosen,
    /// Whether a specialized script can decide all operations so far.
    are_specialized: bool,
    runs: Runs,
    /// One for each operation.
    waiters: Waiters,
}

impl Batch {
    fn is_of(&self, plan: &Arc<Plan>, tier: Chosen) -> bool {
        self.tier == tier && Arc::ptr_eq(&self.plan, plan)
    }

    fn add(&mut self, op: Op, is_specialized: bool, waiter: Waiter) {
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
type Runs = SmallVec<[(Op, usize); 1]>;

/// Operations on one subject, done one after another.
#[derive(Debug, Clone)]
pub(crate) struct SubjectOps {
    pub(crate) subject: SubjectName,
    pub(crate) runs: Runs,
    /// Whether a specialized script can decide them all.
    pub(crate) are_specialized: bool,
}

impl SubjectOps {
    fn ops(&self) -> usize {
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

/// The most calls of one subject in flight. Beyond it the subject waits for an answer.
const MAX_CALLS_OF_SUBJECT: usize = 32;

/// While fewer subjects are in flight the server is idle, so each subject is sent at once.
const BUSY_SUBJECTS: usize = 8;

/// The most subjects sent in one round, since the lock is held meanwhile.
const MAX_SUBJECTS_PER_ROUND: usize = 1_024;

/// Queues keep room for so many subjects.
const KEPT_SUBJECTS: usize = 64;

/// The queues that one dispatcher drains.
#[derive(Default)]
struct SubjectQueues {
    queues: SubjectMap<SubjectQueue>,
    /// Subjects that wait and have no call in flight.
    ready: VecDeque<QueuedSubject>,
    /// Subjects that wait for an answer about themselves, in the order in which they began to wait.
    /// Contains stale entries of subjects that were sent since.
    blocked: VecDeque<QueuedSubject>,
    in_flight: usize,
    /// Whether the last round set a time of the next one, for all that waits. None is set while
    /// nothing waits, or the response time is not known.
    has_next_round: bool,
    /// Wakes the dispatcher when it has something to do.
    arrival: Arc<Notify>,
    /// The calls that the dispatcher has to send next.
    calls: CallBuilder,
    /// Calls that have left.
    begun: Vec<BegunCall>,
    /// The batcher, until all operations are answered: they are done even if the limiter is dropped.
    batcher: Option<Arc<dyn Any + Send + Sync>>,
}

struct QueuedSubject {
    subject: SubjectName,
    since: Instant,
}

/// The operations of one subject that wait.
struct SubjectQueue {
    /// One batch for each tier and plan, in the order in which they began.
    waiting: SmallVec<[Batch; 1]>,
    /// When the first operation began to wait.
    since: Instant,
    listed: Listed,
    calls: usize,
}

/// The list that contains a subject, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    Nowhere,
    Ready,
    Blocked,
}

/// The conditions of one round of dispatching.
struct Round {
    /// Whether a call has just ended.
    has_finished: bool,
    most_subjects: usize,
    /// The longest time that operations wait for an answer about other subjects before they are sent without it.
    for_others: Duration,
    /// For an answer about their own subject; `None` if a subject has one call in flight at most.
    for_own: Option<Duration>,
}

impl SubjectQueues {
    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Queues an operation. Returns whether the dispatcher has something to do: a call to send, or the
    /// time of the next round to set.
    fn add(
        &mut self,
        (subject, op): (SubjectName, NewOp),
        waiter: Waiter,
        now: Instant,
        most_subjects: usize,
    ) -> bool {
        let (subject, queue) = match self.queues.entry(subject) {
            Entry::Occupied(entry) => (entry.key().clone(), entry.into_mut()),
            Entry::Vacant(entry) => (entry.key().clone(), entry.insert(SubjectQueue::new(now))),
        };
        queue.add(op, waiter);
        if queue.listed != Listed::Nowhere {
            return false;
        }
        queue.since = now;
        let (listed, list) = match queue.calls {
            0 => (Listed::Ready, &mut self.ready),
            _ => (Listed::Blocked, &mut self.blocked),
        };
        queue.listed = listed;
        list.push_back(QueuedSubject {
            subject,
            since: now,
        });
        let is_first = list.len() == 1;
        let fills_call = listed == Listed::Ready && self.ready.len().is_multiple_of(most_subjects);
        let is_covered = self.has_next_round && self.in_flight >= BUSY_SUBJECTS;
        is_first || fills_call || !is_covered
    }

    /// The call with the only subject that waits.
    fn dispatch_first(&mut self, now: Instant) -> Option<BatchCall> {
        let first = self.ready.pop_front()?;
        self.dispatch_subject(&first.subject, now);
        self.calls.calls.pop()
    }

    /// Records that a call has ended: its subjects are ready again.
    fn finish(&mut self, call: &BatchCall) {
        for SubjectOps { subject, .. } in &call.subjects {
            // A call that was leaving while its dispatcher ended by a panic is not counted by the next one.
            let queue = self.queues.get_mut(subject);
            let Some(queue) = queue.filter(|queue| queue.calls > 0) else {
                continue;
            };
            self.in_flight -= 1;
            queue.calls -= 1;
            if queue.listed == Listed::Blocked {
                queue.listed = Listed::Ready;
                self.has_next_round = false;
                self.ready.push_back(QueuedSubject {
                    subject: subject.clone(),
                    since: queue.since,
                });
            } else if queue.is_idle() {
                self.queues.remove(subject);
            }
        }
    }

    /// Moves the subjects that can be sent now into calls. Returns the time of the next round,
    /// unless something happens before.
    fn dispatch(&mut self, round: &Round) -> Option<Instant> {
        if self.ready.is_empty() && self.blocked.is_empty() {
            self.has_next_round = false;
            self.shrink();
            return None;
        }
        let now = Instant::now();
        self.calls.most_subjects = round.most_subjects;
        for _ in 0..self.dispatchable_count(round, now) {
            if let Some(queued) = self.ready.pop_front() {
                self.dispatch_subject(&queued.subject, now);
            }
        }
        self.drop_stale();
        let first_ready = self.ready.front();
        let ready_at = first_ready.map(|queued| queued.since + round.for_others);
        let blocked_at = round
            .for_own
            .and_then(|max_wait| self.dispatch_blocked(max_wait, now));
        let next_round = [ready_at, blocked_at].into_iter().flatten().min();
        self.has_next_round = next_round.is_some();
        next_round
    }

    /// Frees the memory of a crowd that is gone.
    fn shrink(&mut self) {
        if self.is_empty() {
            self.queues.shrink_to(KEPT_SUBJECTS);
            self.ready.shrink_to(KEPT_SUBJECTS);
            self.blocked.shrink_to(KEPT_SUBJECTS);
        }
    }

    /// Number of ready subjects to send. Full calls are sent in any case. While the server is busy
    /// the rest waits for an answer, so that more subjects share a call.
    fn dispatchable_count(&self, round: &Round, now: Instant) -> usize {
        let Some(first) = self.ready.front() else {
            return 0;
        };
        let sends_all = round.has_finished
            || round.most_subjects == 1
            || self.in_flight < BUSY_SUBJECTS
            || first.since + round.for_others <= now;
        let full = self.ready.len() / round.most_subjects * round.most_subjects;
        let count = if sends_all { self.ready.len() } else { full };
        count.min(MAX_SUBJECTS_PER_ROUND)
    }

    /// Drops entries of subjects that were sent since from the front of the blocked list.
    fn drop_stale(&mut self) {
        while let Some(first) = self.blocked.front() {
            let queue = self.queues.get(&first.subject);
            let is_current = |queue: &SubjectQueue| {
                queue.listed == Listed::Blocked && queue.since == first.since
            };
            if queue.is_some_and(is_current) {
                return;
            }
            self.blocked.pop_front();
        }
    }

    /// Sends the blocked subjects that have waited for `max_wait`. Returns the time at which the
    /// next one will have.
    fn dispatch_blocked(&mut self, max_wait: Duration, now: Instant) -> Option<Instant> {
        while let Some(first) = self.blocked.front() {
            let send_at = first.since + max_wait;
            if now < send_at {
                return Some(send_at);
            }
            let queue = self.queues.get(&first.subject);
            let has_room = queue.is_some_and(|queue| queue.calls < MAX_CALLS_OF_SUBJECT);
            if let Some(queued) = self.blocked.pop_front()
                && has_room
            {
                self.dispatch_subject(&queued.subject, now);
            }
            self.drop_stale();
        }
        None
    }

    fn dispatch_subject(&mut self, subject: &SubjectName, now: Instant) {
        let Some(queue) = self.queues.get_mut(subject) else {
            return;
        };
        queue.listed = Listed::Nowhere;
        for batch in mem::take(&mut queue.waiting) {
            let parts = self.calls.add(subject, batch, now);
            queue.calls += parts;
            self.in_flight += parts;
        }
        if queue.is_idle() {
            self.queues.remove(subject);
        }
    }
}

impl SubjectQueue {
    const fn new(now: Instant) -> Self {
        Self {
            waiting: SmallVec::new_const(),
            since: now,
            listed: Listed::Nowhere,
            calls: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.calls == 0 && self.waiting.is_empty()
    }

    fn add(&mut self, op: NewOp, waiter: Waiter) {
        let mut waiting = self.waiting.iter_mut();
        match waiting.find(|batch| batch.is_of(&op.plan, op.tier)) {
            Some(batch) => batch.add(op.op, op.is_specialized, waiter),
            None => self.waiting.push(Batch {
                plan: op.plan,
                tier: op.tier,
                are_specialized: op.is_specialized,
                runs: smallvec![(op.op, 1)],
                waiters: smallvec![waiter],
            }),
        }
    }
}
