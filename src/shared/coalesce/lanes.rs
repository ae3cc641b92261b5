//! Lanes: the subjects that wait or have anything under way, and which of them may leave.

use std::{
    collections::{VecDeque, hash_map::Entry},
    mem,
    sync::Arc,
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{sync::Notify, time::Instant};

use super::{
    batch::{Asked, Batch, WaitingOp},
    convoy::{Convoy, Departure},
};
use crate::shared::subject::{SubjectMap, SubjectName};

/// The most calls of one subject that leave while others are under way, other than with an answer.
const MAX_FLIGHTS: usize = 32;

/// While fewer subjects are under way, each leaves at once: the server has nothing else to do.
pub(super) const FEW: usize = 8;

/// The most subjects that leave in one go, so that nobody waits long for the lock.
const MAX_DEPARTING: usize = 1_024;

/// All lanes of a limiter that one driver looks after.
pub(super) struct Lanes<P> {
    lanes: SubjectMap<Lane<P>>,
    /// The subjects that wait and have nothing under way.
    due: VecDeque<Queued>,
    /// The subjects that wait for an answer about themselves, in the order in which they began to,
    /// and some that have left since.
    behind: VecDeque<Queued>,
    /// How many questions are under way.
    under_way: usize,
    /// Tells the driver that something waits.
    pub(super) stirred: Arc<Notify>,
}

struct Queued {
    subject: SubjectName,
    since: Instant,
}

/// The operations of one subject that wait.
struct Lane<P> {
    /// One batch for each tier and plan. Each was begun before the next.
    waiting: SmallVec<[Batch<P>; 1]>,
    /// When the first of them began to wait.
    since: Instant,
    listed: Listed,
    /// Questions about the subject that are under way.
    flights: usize,
}

/// The list that contains a lane, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    Nowhere,
    Due,
    Behind,
}

/// What a driver goes by when it looks at the lanes.
pub(super) struct View {
    pub(super) now: Instant,
    /// Whether an answer has just come.
    pub(super) has_landed: bool,
    /// The most subjects of one call.
    pub(super) most: usize,
    pub(super) patience: Patience,
}

/// How long operations wait for an answer to leave with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For an answer about other subjects.
    pub(super) for_others: Duration,
    /// For an answer about the same subject; `None` where one call of a subject follows another.
    pub(super) for_own: Option<Duration>,
}

impl<P> Lanes<P> {
    pub(super) fn new() -> Self {
        Self {
            lanes: SubjectMap::default(),
            due: VecDeque::new(),
            behind: VecDeque::new(),
            under_way: 0,
            stirred: Arc::default(),
        }
    }

    /// How many subjects wait and have nothing under way.
    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// Whether the subject waits or has anything under way.
    pub(super) fn has(&self, subject: &SubjectName) -> bool {
        self.lanes.contains_key(subject)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Says whether the subject has only now begun to wait.
    pub(super) fn add(
        &mut self,
        subject: SubjectName,
        asked: Asked<P>,
        waiter: WaitingOp,
        now: Instant,
    ) -> bool {
        let (subject, lane) = match self.lanes.entry(subject) {
            Entry::Occupied(place) => (place.key().clone(), place.into_mut()),
            Entry::Vacant(place) => (place.key().clone(), place.insert(Lane::new(now))),
        };
        lane.add(asked, waiter);
        if lane.listed != Listed::Nowhere {
            return false;
        }
        lane.since = now;
        let (listed, list) = match lane.flights {
            0 => (Listed::Due, &mut self.due),
            _ => (Listed::Behind, &mut self.behind),
        };
        lane.listed = listed;
        list.push_back(Queued {
            subject,
            since: now,
        });
        true
    }

    /// A call is over: what waited for it may leave.
    pub(super) fn land(&mut self, call: &Convoy<P>) {
        for question in &call.questions {
            self.under_way -= 1;
            let Some(lane) = self.lanes.get_mut(&question.subject) else {
                continue;
            };
            lane.flights -= 1;
            if lane.listed == Listed::Behind {
                lane.listed = Listed::Due;
                self.due.push_back(Queued {
                    subject: question.subject.clone(),
                    since: lane.since,
                });
            } else if lane.is_over() {
                self.lanes.remove(&question.subject);
            }
        }
    }

    /// Has those leave that may, and says when to look again.
    pub(super) fn leave(&mut self, view: &View, departure: &mut Departure<P>) -> Option<Instant> {
        for _ in 0..self.may_leave(view) {
            if let Some(queued) = self.due.pop_front() {
                self.depart(&queued.subject, view.now, departure);
            }
        }
        self.tidy_behind();
        let first_due = self.due.front();
        let due_at = first_due.map(|queued| queued.since + view.patience.for_others);
        let behind_at = view
            .patience
            .for_own
            .and_then(|patience| self.leave_behind(patience, view.now, departure));
        [due_at, behind_at].into_iter().flatten().min()
    }

    /// How many of those that are due may leave. A full call may in any case. Others wait for an
    /// answer while the server has enough to do, so that more of them travel together.
    fn may_leave(&self, view: &View) -> usize {
        let Some(first) = self.due.front() else {
            return 0;
        };
        let may_all = view.has_landed
            || view.most == 1
            || self.under_way < FEW
            || first.since + view.patience.for_others <= view.now;
        let full = self.due.len() / view.most * view.most;
        let count = if may_all { self.due.len() } else { full };
        count.min(MAX_DEPARTING)
    }

    /// Drops those from the front of the list that have left since.
    fn tidy_behind(&mut self) {
        while let Some(first) = self.behind.front() {
            let lane = self.lanes.get(&first.subject);
            let waits = |lane: &Lane<P>| lane.listed == Listed::Behind && lane.since == first.since;
            if lane.is_some_and(waits) {
                return;
            }
            self.behind.pop_front();
        }
    }

    /// Has those leave that have waited for long enough for an answer about themselves, and says
    /// when the next one will have.
    fn leave_behind(
        &mut self,
        patience: Duration,
        now: Instant,
        departure: &mut Departure<P>,
    ) -> Option<Instant> {
        while let Some(first) = self.behind.front() {
            let leave_at = first.since + patience;
            if now < leave_at {
                return Some(leave_at);
            }
            let lane = self.lanes.get(&first.subject);
            let may_leave = lane.is_some_and(|lane| lane.flights < MAX_FLIGHTS);
            if let Some(queued) = self.behind.pop_front()
                && may_leave
            {
                self.depart(&queued.subject, now, departure);
            }
            self.tidy_behind();
        }
        None
    }

    fn depart(&mut self, subject: &SubjectName, now: Instant, departure: &mut Departure<P>) {
        let Some(lane) = self.lanes.get_mut(subject) else {
            return;
        };
        lane.listed = Listed::Nowhere;
        for batch in mem::take(&mut lane.waiting) {
            let parts = departure.add(subject, batch, now);
            lane.flights += parts;
            self.under_way += parts;
        }
        if lane.is_over() {
            self.lanes.remove(subject);
        }
    }
}

impl<P> Lane<P> {
    const fn new(now: Instant) -> Self {
        Self {
            waiting: SmallVec::new_const(),
            since: now,
            listed: Listed::Nowhere,
            flights: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.flights == 0 && self.waiting.is_empty()
    }

    fn add(&mut self, asked: Asked<P>, waiter: WaitingOp) {
        let Asked {
            plan,
            tier,
            op,
            is_simple,
        } = asked;
        let known = self
            .waiting
            .iter_mut()
            .find(|batch| batch.is_of(&plan, tier));
        match known {
            Some(batch) => batch.add(op, is_simple, waiter),
            None => {
                let mut batch = Batch::new(plan, tier);
                batch.add(op, is_simple, waiter);
                self.waiting.push(batch);
            }
        }
    }
}
