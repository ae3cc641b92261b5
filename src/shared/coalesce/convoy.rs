//! Convoys: the questions about many subjects that the server is asked at once.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use smallvec::SmallVec;

use super::batch::{Batch, OpReply, Row, Rows, Waiters, WaitingOp};
use crate::{
    decision::Op,
    limiter::tier_set::Chosen,
    shared::{
        subject::SubjectName,
        wire::message::{NodeReply, Takes},
    },
    store::{call_size::CallSize, error::StoreError},
};

/// The server's answer to a question.
pub(in crate::shared) type SubjectAnswer = Result<AnsweredOps, StoreError>;

/// The outcome of a question's operations, and of what was said about a lease.
#[derive(Debug)]
pub(in crate::shared) struct AnsweredOps {
    pub(in crate::shared) rows: SmallVec<[Row; 1]>,
    pub(in crate::shared) lease: Option<Box<NodeReply>>,
    /// How long denials are to be held to at most, where that is less than they tell.
    pub(in crate::shared) hold: Option<Duration>,
}

/// The most rows of one call: few enough for the server not to be held up.
const MAX_ROWS_PER_CALL: usize = 256;

/// The most operations of one call. Not every algorithm does alike ones in one step.
const MAX_OPS_PER_CALL: usize = 1_024;

/// The most calls among which a question looks for one that it can join.
const MAX_OPEN_CALLS: usize = 8;

/// Operations on one subject, to be done one after another.
#[derive(Debug, Clone)]
pub(in crate::shared) struct SubjectOps {
    pub(in crate::shared) subject: SubjectName,
    pub(in crate::shared) rows: Rows,
    /// Whether the script that knows few operations is to answer.
    pub(in crate::shared) are_simple: bool,
}

/// Questions that the server is asked at once, all of one script by the quotas of one tier.
pub(super) struct Convoy<P> {
    pub(super) plan: Arc<P>,
    pub(super) tier: Chosen,
    pub(super) questions: Vec<SubjectOps>,
    /// For each question, one for each operation.
    waiters: Vec<Waiters>,
    size: CallSize,
    ops: usize,
}

/// The calls that leave at one moment.
pub(super) struct Departure<P> {
    /// The most questions of one call.
    most: usize,
    pub(super) calls: Vec<Convoy<P>>,
    /// Operations whose time was over before they were sent.
    late: Vec<WaitingOp>,
}

impl SubjectOps {
    pub(in crate::shared) fn ops(&self) -> usize {
        self.rows.iter().map(|(_, count)| count).sum()
    }

    /// The most units that the operations take together, of which there are `most`; none where the
    /// store alone can tell.
    pub(in crate::shared) fn most_taken(&self, most: u64) -> Option<Takes> {
        self.rows.iter().try_fold(Takes::NONE, |sum, (op, count)| {
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

impl<P> Departure<P> {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            calls: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Adds all operations of a batch, in as many calls as they need, and says in how many.
    pub(super) fn add(
        &mut self,
        subject: &SubjectName,
        mut batch: Batch<P>,
        now: Instant,
    ) -> usize {
        batch.give_up_late(now, &mut self.late);
        let mut parts = 0;
        while let Some((rows, waiters)) = batch.take(MAX_ROWS_PER_CALL, MAX_OPS_PER_CALL) {
            let question = SubjectOps {
                subject: subject.clone(),
                rows,
                are_simple: batch.are_simple,
            };
            // A later part of the same subject must not leave before the one before.
            let open = match parts {
                0 => self.open_call(&batch, &question),
                _ => None,
            };
            let call = match open {
                Some(at) => &mut self.calls[at],
                None => {
                    self.calls.push(Convoy::new(&batch));
                    self.calls.last_mut().expect("it was just pushed")
                }
            };
            call.add(question, waiters);
            parts += 1;
        }
        parts
    }

    fn open_call(&self, batch: &Batch<P>, question: &SubjectOps) -> Option<usize> {
        let (rows, ops) = (question.rows.len(), question.ops());
        let mut calls = self.calls.iter().enumerate().rev().take(MAX_OPEN_CALLS);
        let (at, call) = calls.find(|(_, call)| call.is_like(batch, question))?;
        let has_room = call.questions.len() < self.most
            && call.size.rows + rows <= MAX_ROWS_PER_CALL
            && call.ops + ops <= MAX_OPS_PER_CALL;
        has_room.then_some(at)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.late.is_empty()
    }

    /// Tells those whose time was over that somebody else decides.
    pub(super) fn turn_late_away(&mut self) {
        for waiter in self.late.drain(..) {
            waiter.answer.send(Err(StoreError::unsent())).ok();
        }
    }
}

impl<P> Convoy<P> {
    fn new(batch: &Batch<P>) -> Self {
        Self {
            plan: Arc::clone(&batch.plan),
            tier: batch.tier,
            questions: Vec::new(),
            waiters: Vec::new(),
            size: CallSize::default(),
            ops: 0,
        }
    }

    fn is_like(&self, batch: &Batch<P>, question: &SubjectOps) -> bool {
        let mut questions = self.questions.iter();
        batch.is_of(&self.plan, self.tier)
            && questions
                .next()
                .is_some_and(|first| first.are_simple == question.are_simple)
    }

    fn add(&mut self, question: SubjectOps, waiters: Waiters) {
        self.size.subjects += 1;
        self.size.rows += question.rows.len();
        self.ops += waiters.len();
        self.questions.push(question);
        self.waiters.push(waiters);
    }

    /// The subject of the first question: a call has at least one.
    pub(super) fn first(&self) -> &SubjectName {
        &self.questions[0].subject
    }

    pub(super) const fn size(&self) -> CallSize {
        self.size
    }

    /// The latest deadline of all operations that wait.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        let last = |waiters: &Waiters| waiters.last().map(|waiter| waiter.deadline);
        self.waiters.iter().filter_map(last).max()
    }

    /// Hands the server's answers, one for each question, to those who wait. Some may have stopped
    /// listening.
    pub(super) fn deliver(self, answers: Vec<SubjectAnswer>) {
        for (waiters, answer) in self.waiters.into_iter().zip(answers) {
            deliver(waiters, answer);
        }
    }

    /// Tells all who wait that there is no answer.
    pub(super) fn fail(self, error: &StoreError) {
        for waiter in self.waiters.into_iter().flatten() {
            waiter.answer.send(Err(error.clone())).ok();
        }
    }
}

fn deliver(waiters: Waiters, answer: SubjectAnswer) {
    let mut waiters = waiters.into_iter();
    let error = match answer {
        Ok(AnsweredOps { rows, .. }) => {
            for Row { count, first } in rows {
                let mut next = first;
                for waiter in waiters.by_ref().take(count) {
                    let after = next.next_alike();
                    send(waiter, Ok(next));
                    next = after;
                }
            }
            return;
        }
        Err(error) => error,
    };
    for waiter in waiters {
        send(waiter, Err(error.clone()));
    }
}

fn send(waiter: WaitingOp, reply: OpReply) {
    waiter.answer.send(reply).ok();
}
