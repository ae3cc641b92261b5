//! Batches: operations of one subject that wait.

use std::{mem, sync::Arc};

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    decision::{Decision, Op},
    limiter::tier_set::Chosen,
    store::error::StoreError,
};

/// The server's answer to operations that are alike and follow each other.
#[derive(Debug)]
pub(in crate::shared) struct Row {
    pub(in crate::shared) count: usize,
    /// The first one's. Each of the others' is the [next](Decision::next_alike).
    pub(in crate::shared) first: Decision,
}

/// Alike operations that follow each other, and how many there are. Most subjects have one.
pub(in crate::shared) type Rows = SmallVec<[(Op, usize); 1]>;

/// Those who wait for a subject's operations, in order.
pub(super) type Waiters = SmallVec<[WaitingOp; 1]>;

/// The server's decision, or why there is none.
pub(super) type OpReply = Result<Decision, StoreError>;

/// An operation that waits.
#[derive(Debug)]
pub(super) struct WaitingOp {
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<OpReply>,
}

impl WaitingOp {
    pub(super) const fn new(deadline: Instant, answer: oneshot::Sender<OpReply>) -> Self {
        Self { deadline, answer }
    }
}

/// An operation, and how it is to be done.
pub(super) struct Asked<P> {
    pub(super) plan: Arc<P>,
    pub(super) tier: Chosen,
    pub(super) op: Op,
    /// Whether it is one for the script that knows few operations.
    pub(super) is_simple: bool,
}

/// Operations of one subject that are measured by the same quotas, in order of arrival.
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

    pub(super) fn add(&mut self, op: Op, is_simple: bool, waiter: WaitingOp) {
        self.are_simple &= is_simple;
        match self.rows.last_mut() {
            Some((alike, count)) if *alike == op => *count += 1,
            _ => self.rows.push((op, 1)),
        }
        self.waiters.push(waiter);
    }

    /// Takes out the operations whose deadline has passed: somebody else has decided about them.
    pub(super) fn give_up_late(&mut self, now: Instant, late: &mut Vec<WaitingOp>) {
        let waiters = self.waiters.iter();
        let count = waiters.take_while(|waiter| waiter.deadline <= now).count();
        if count > 0 {
            late.extend(self.waiters.drain(..count));
            take_rows(&mut self.rows, usize::MAX, count);
        }
    }

    /// Takes up to so many rows of so many operations in all, and those who wait for them; `None`
    /// when nothing is left.
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
