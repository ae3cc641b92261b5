//! Batches: operations of one subject that wait to be sent.

use std::{mem, sync::Arc};

use tokio::{sync::oneshot, time::Instant};

use smallvec::SmallVec;

use super::subject_ops::Rows;
use crate::{
    decision::{Decision, Op},
    limiter::tier_set::Chosen,
    store::error::StoreError,
};

/// The waiters of a subject's operations, in order.
pub(super) type Waiters = SmallVec<[Waiter; 1]>;

/// The server's decision, or the error of the call.
pub(in crate::shared) type OpReply = Result<Decision, StoreError>;

/// The caller of one operation.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) deadline: Instant,
    reply: oneshot::Sender<OpReply>,
}

impl Waiter {
    pub(super) const fn new(deadline: Instant, reply: oneshot::Sender<OpReply>) -> Self {
        Self { deadline, reply }
    }

    /// Sends the reply, unless the caller has stopped waiting.
    pub(super) fn reply(self, reply: OpReply) {
        self.reply.send(reply).ok();
    }
}

/// An operation, and the quotas that decide it.
pub(in crate::shared) struct NewOp<P> {
    pub(in crate::shared) plan: Arc<P>,
    pub(in crate::shared) tier: Chosen,
    pub(in crate::shared) op: Op,
    /// Whether the script for few operations can decide it. Such operations have calls of their
    /// own.
    pub(in crate::shared) is_simple: bool,
}

/// Operations of one subject that the same quotas decide, in order of arrival.
pub(super) struct Batch<P> {
    pub(super) plan: Arc<P>,
    pub(super) tier: Chosen,
    /// Whether all operations so far were simple.
    pub(super) are_simple: bool,
    rows: Rows,
    /// One for each operation.
    waiters: Waiters,
}

impl<P> Batch<P> {
    pub(super) const fn new(plan: Arc<P>, tier: Chosen) -> Self {
        Self {
            plan,
            tier,
            are_simple: true,
            rows: Rows::new_const(),
            waiters: Waiters::new_const(),
        }
    }

    pub(super) fn is_of(&self, plan: &Arc<P>, tier: Chosen) -> bool {
        self.tier == tier && Arc::ptr_eq(&self.plan, plan)
    }

    pub(super) fn add(&mut self, op: Op, is_simple: bool, waiter: Waiter) {
        self.are_simple &= is_simple;
        match self.rows.last_mut() {
            Some((last, count)) if *last == op => *count += 1,
            _ => self.rows.push((op, 1)),
        }
        self.waiters.push(waiter);
    }

    /// Moves the waiters whose deadline has passed to `expired`, and drops their operations: their
    /// callers have used the fallback.
    pub(super) fn drain_expired(&mut self, now: Instant, expired: &mut Vec<Waiter>) {
        let waiters = self.waiters.iter();
        let count = waiters.take_while(|waiter| waiter.deadline <= now).count();
        if count > 0 {
            expired.extend(self.waiters.drain(..count));
            take_rows(&mut self.rows, usize::MAX, count);
        }
    }

    /// Takes up to `most_rows` rows with at most `most_ops` operations in all, and their waiters;
    /// `None` if nothing is left.
    pub(super) fn take(&mut self, most_rows: usize, most_ops: usize) -> Option<(Rows, Waiters)> {
        if self.waiters.is_empty() {
            return None;
        }
        if self.rows.len() <= most_rows && self.waiters.len() <= most_ops {
            return Some((mem::take(&mut self.rows), mem::take(&mut self.waiters)));
        }
        let rows = take_rows(&mut self.rows, most_rows, most_ops);
        let count: usize = rows.iter().map(|(_, count)| count).sum();
        Some((rows, self.waiters.drain(..count).collect()))
    }
}

/// Takes rows from the front, the last of them perhaps in part.
fn take_rows(rows: &mut Rows, most_rows: usize, most_ops: usize) -> Rows {
    let mut left = most_ops;
    let mut whole = 0;
    for (_, count) in rows.iter().take(most_rows) {
        if *count > left {
            break;
        }
        left -= count;
        whole += 1;
    }
    let mut taken: Rows = rows.drain(..whole).collect();
    if whole < most_rows
        && left > 0
        && let Some((op, count)) = rows.first_mut()
    {
        *count -= left;
        taken.push((Op::clone(op), left));
    }
    taken
}
