//! Queues of one runtime: the operations of each subject that wait, and its calls in flight.

use std::{
    any::Any,
    collections::{VecDeque, hash_map::Entry},
    mem,
    sync::Arc,
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{sync::Notify, time::Instant};

use super::batched_calls::{Batch, BatchCall, BegunCall, CallBuilder, NewOp, SubjectOps, Waiter};
use crate::hashed_key_names::{SubjectMap, SubjectName};

/// The most calls of one subject in flight. Beyond it the subject waits for an answer.
const MAX_CALLS_OF_SUBJECT: usize = 32;

/// While fewer subjects are in flight the server is idle, so each subject is sent at once.
pub(super) const BUSY_SUBJECTS: usize = 8;

/// The most subjects sent in one round, since the lock is held meanwhile.
const MAX_SUBJECTS_PER_ROUND: usize = 1_024;

/// Queues keep room for so many subjects.
const KEPT_SUBJECTS: usize = 64;

/// The queues that one dispatcher drains.
#[derive(Default)]
pub(super) struct SubjectQueues {
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
    pub(super) arrival: Arc<Notify>,
    /// The calls that the dispatcher has to send next.
    pub(super) calls: CallBuilder,
    /// Calls that have left.
    pub(super) begun: Vec<BegunCall>,
    /// The batcher, until all operations are answered: they are done even if the limiter is dropped.
    pub(super) batcher: Option<Arc<dyn Any + Send + Sync>>,
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
pub(super) struct Round {
    /// Whether a call has just ended.
    pub(super) has_finished: bool,
    pub(super) most_subjects: usize,
    /// The longest time that operations wait for an answer about other subjects before they are sent without it.
    pub(super) for_others: Duration,
    /// For an answer about their own subject; `None` if a subject has one call in flight at most.
    pub(super) for_own: Option<Duration>,
}

impl SubjectQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Queues an operation. Returns whether the dispatcher has something to do: a call to send, or the
    /// time of the next round to set.
    pub(super) fn add(
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
    pub(super) fn dispatch_first(&mut self, now: Instant) -> Option<BatchCall> {
        let first = self.ready.pop_front()?;
        self.dispatch_subject(&first.subject, now);
        self.calls.calls.pop()
    }

    /// Records that a call has ended: its subjects are ready again.
    pub(super) fn finish(&mut self, call: &BatchCall) {
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
    pub(super) fn dispatch(&mut self, round: &Round) -> Option<Instant> {
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
            None => {
                let mut batch = Batch::new(op.plan, op.tier);
                batch.add(op.op, op.is_specialized, waiter);
                self.waiting.push(batch);
            }
        }
    }
}
