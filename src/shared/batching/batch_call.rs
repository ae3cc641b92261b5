//! Calls: the operations of many subjects that are sent to the server at once.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    batch::{Batch, Waiter, Waiters},
    subject_ops::{AnsweredOps, Row, SubjectAnswer, SubjectOps},
};
use crate::{
    limiter::tier_set::Chosen, shared::hashed_key_names::SubjectName, store::error::StoreError,
};

/// The most rows of one call, so that it does not block the server for long.
const MAX_ROWS_PER_CALL: usize = 256;

/// The most operations of one call. Some algorithms do not decide a row of equal operations in one
/// step.
const MAX_OPS_PER_CALL: usize = 1_024;

/// The number of newest calls that are searched for one that a subject can join.
const MAX_OPEN_CALLS: usize = 8;

/// Subjects that are sent at once, all to one script and by the quotas of one tier.
pub(super) struct BatchCall<P> {
    pub(super) plan: Arc<P>,
    pub(super) tier: Chosen,
    pub(super) subjects: Vec<SubjectOps>,
    /// For each subject, one waiter for each operation.
    waiters: Vec<Waiters>,
    row_count: usize,
    ops: usize,
}

/// Distributes batches among the calls that are sent at one moment.
pub(super) struct CallBuilder<P> {
    /// The most subjects of one call.
    most_subjects: usize,
    pub(super) calls: Vec<BatchCall<P>>,
    /// Waiters whose deadline passed before their operation was sent.
    expired: Vec<Waiter>,
}

impl<P> CallBuilder<P> {
    pub(super) const fn new(most_subjects: usize) -> Self {
        Self {
            most_subjects,
            calls: Vec::new(),
            expired: Vec::new(),
        }
    }

    /// Adds all operations of a batch, in as many calls as they need. Returns that number.
    pub(super) fn add(
        &mut self,
        subject: &SubjectName,
        mut batch: Batch<P>,
        now: Instant,
    ) -> usize {
        batch.drain_expired(now, &mut self.expired);
        let mut parts = 0;
        while let Some((rows, waiters)) = batch.take(MAX_ROWS_PER_CALL, MAX_OPS_PER_CALL) {
            let ops = SubjectOps {
                subject: subject.clone(),
                rows,
                are_simple: batch.are_simple,
            };
            // A later part of one subject must not be sent before an earlier one.
            let open = match parts {
                0 => self.open_call(&batch, &ops),
                _ => None,
            };
            let call = match open {
                Some(at) => &mut self.calls[at],
                None => {
                    self.calls.push(BatchCall::new(&batch));
                    self.calls.last_mut().expect("it was just pushed")
                }
            };
            call.add(ops, waiters);
            parts += 1;
        }
        parts
    }

    fn open_call(&self, batch: &Batch<P>, subject: &SubjectOps) -> Option<usize> {
        let (rows, ops) = (subject.rows.len(), subject.ops());
        let mut calls = self.calls.iter().enumerate().rev().take(MAX_OPEN_CALLS);
        let (at, call) = calls.find(|(_, call)| call.accepts(batch, subject))?;
        let has_room = call.subjects.len() < self.most_subjects
            && call.row_count + rows <= MAX_ROWS_PER_CALL
            && call.ops + ops <= MAX_OPS_PER_CALL;
        has_room.then_some(at)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.expired.is_empty()
    }

    /// Fails the operations whose deadline passed before they were sent.
    pub(super) fn fail_expired(&mut self) {
        for waiter in self.expired.drain(..) {
            waiter.reply(Err(StoreError::unsent()));
        }
    }
}

impl<P> BatchCall<P> {
    fn new(batch: &Batch<P>) -> Self {
        Self {
            plan: Arc::clone(&batch.plan),
            tier: batch.tier,
            subjects: Vec::new(),
            waiters: Vec::new(),
            row_count: 0,
            ops: 0,
        }
    }

    /// Whether the same script decides the subject by the same quotas.
    fn accepts(&self, batch: &Batch<P>, subject: &SubjectOps) -> bool {
        let mut subjects = self.subjects.iter();
        batch.is_of(&self.plan, self.tier)
            && subjects
                .next()
                .is_some_and(|first| first.are_simple == subject.are_simple)
    }

    fn add(&mut self, subject: SubjectOps, waiters: Waiters) {
        self.row_count += subject.rows.len();
        self.ops += waiters.len();
        self.subjects.push(subject);
        self.waiters.push(waiters);
    }

    /// The latest deadline of all waiters.
    pub(super) fn last_deadline(&self) -> Instant {
        let last = |waiters: &Waiters| waiters.last().map(|waiter| waiter.deadline);
        let last = self.waiters.iter().filter_map(last).max();
        last.unwrap_or_else(Instant::now)
    }

    /// Delivers the server's answers, one for each subject, to the waiters.
    pub(super) fn deliver(self, answers: Vec<SubjectAnswer>) {
        for (waiters, answer) in self.waiters.into_iter().zip(answers) {
            deliver(waiters, answer);
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
                    waiter.reply(Ok(next));
                    next = after;
                }
            }
            return;
        }
        Err(error) => error,
    };
    for waiter in waiters {
        waiter.reply(Err(error.clone()));
    }
}
