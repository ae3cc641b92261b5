//! Batches: operations that wait, and the call that carries them.

use std::{collections::VecDeque, sync::Arc};

use tokio::{sync::oneshot, time::Instant};

use crate::{
    decision::Decision, decision::Op, limiter::limits::Chosen, redis::store::error::StoreError,
};

/// The most rows of one call: few enough for the server not to be held up.
const MAX_ROWS_PER_CALL: usize = 256;

/// The most operations of one call. Not every algorithm does alike ones in one step.
const MAX_OPS_PER_CALL: usize = 1_024;

/// What the server says of operations that are alike and follow each other.
#[derive(Debug)]
pub(in crate::shared) struct Row {
    pub(in crate::shared) count: usize,
    /// The first one's. Each of the others' is the [next](Decision::next_alike).
    pub(in crate::shared) first: Decision,
}

/// What the server says, or why it says nothing.
pub(super) type Reply = Result<Decision, StoreError>;

/// An operation that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Reply>,
}

/// Operations of one subject that are measured by the same quotas, in order of arrival.
pub(super) struct Batch<P> {
    plan: Arc<P>,
    tier: Chosen,
    /// Alike operations that follow each other, and how many there are.
    rows: VecDeque<(Op, usize)>,
    /// One for each operation.
    waiters: VecDeque<Waiter>,
}

/// What one call carries.
pub(super) struct Call<P> {
    pub(super) plan: Arc<P>,
    pub(super) tier: Chosen,
    pub(super) rows: Vec<(Op, usize)>,
    pub(super) waiters: VecDeque<Waiter>,
}

impl<P> Batch<P> {
    pub(super) const fn new(plan: Arc<P>, tier: Chosen) -> Self {
        Self {
            plan,
            tier,
            rows: VecDeque::new(),
            waiters: VecDeque::new(),
        }
    }

    pub(super) fn is_of(&self, plan: &Arc<P>, tier: Chosen) -> bool {
        self.tier == tier && Arc::ptr_eq(&self.plan, plan)
    }

    pub(super) fn add(&mut self, op: Op, waiter: Waiter) {
        match self.rows.back_mut() {
            Some((alike, count)) if *alike == op => *count += 1,
            _ => self.rows.push_back((op, 1)),
        }
        self.waiters.push_back(waiter);
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.waiters.front().map(|waiter| waiter.deadline)
    }

    /// Takes what the next call carries. What has waited for longer than its deadline is not sent:
    /// somebody else has decided about it.
    pub(super) fn next_call(&mut self, now: Instant) -> Option<Call<P>> {
        while self
            .first_deadline()
            .is_some_and(|deadline| deadline <= now)
            && let Some(late) = self.waiters.pop_front()
        {
            self.take_ops(1);
            late.answer.send(Err(StoreError::unsent())).ok();
        }
        let rows = self.take_rows();
        let count = rows.iter().map(|(_, count)| count).sum();
        (count > 0).then(|| Call {
            plan: Arc::clone(&self.plan),
            tier: self.tier,
            rows,
            waiters: self.take_waiters(count),
        })
    }

    fn take_rows(&mut self) -> Vec<(Op, usize)> {
        let mut rows = Vec::new();
        let mut left = MAX_OPS_PER_CALL;
        while rows.len() < MAX_ROWS_PER_CALL
            && left > 0
            && let Some((op, count)) = self.take_ops(left)
        {
            rows.push((op, count));
            left -= count;
        }
        rows
    }

    /// Takes up to `most` operations of the first row.
    fn take_ops(&mut self, most: usize) -> Option<(Op, usize)> {
        let (op, count) = self.rows.front_mut()?;
        if *count > most {
            *count -= most;
            return Some((Op::clone(op), most));
        }
        self.rows.pop_front()
    }

    fn take_waiters(&mut self, count: usize) -> VecDeque<Waiter> {
        if count == self.waiters.len() {
            return std::mem::take(&mut self.waiters);
        }
        self.waiters.drain(..count).collect()
    }
}

/// Tells everybody what the server said. Nobody may be listening any more.
pub(super) fn deliver(waiters: VecDeque<Waiter>, answer: Result<Vec<Row>, StoreError>) {
    let mut waiters = waiters.into_iter();
    match answer {
        Ok(rows) => {
            for Row { count, first } in rows {
                deliver_row(waiters.by_ref().take(count), first);
            }
        }
        Err(error) => {
            for waiter in waiters {
                waiter.answer.send(Err(error.clone())).ok();
            }
        }
    }
}

fn deliver_row(waiters: impl Iterator<Item = Waiter>, first: Decision) {
    let mut next = first;
    for waiter in waiters {
        let after = next.next_alike();
        waiter.answer.send(Ok(next)).ok();
        next = after;
    }
}
