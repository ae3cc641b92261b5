//! Operations on one subject within a call, and the server's answer to them.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{
    decision::{Decision, Op},
    shared::{
        hashed_key_names::SubjectName,
        wire::node_message::{NodeReply, Takes},
    },
    store::error::StoreError,
};

/// Equal consecutive operations, and their number. Most subjects have one row.
pub(in crate::shared) type Rows = SmallVec<[(Op, usize); 1]>;

/// Operations on one subject, done one after another.
#[derive(Debug, Clone)]
pub(in crate::shared) struct SubjectOps {
    pub(in crate::shared) subject: SubjectName,
    pub(in crate::shared) rows: Rows,
    /// Whether the script for few operations can decide them all.
    pub(in crate::shared) are_simple: bool,
}

/// The server's answer about one subject.
pub(in crate::shared) type SubjectAnswer = Result<AnsweredOps, StoreError>;

/// The decisions about one subject's operations, and the reply to the message attached to them.
#[derive(Debug)]
pub(in crate::shared) struct AnsweredOps {
    pub(in crate::shared) rows: SmallVec<[Row; 1]>,
    pub(in crate::shared) lease: Option<Box<NodeReply>>,
    /// How long a denial stays cached at most, if that is less than its own wait.
    pub(in crate::shared) hold: Option<Duration>,
}

/// The decisions about equal consecutive operations.
#[derive(Debug)]
pub(in crate::shared) struct Row {
    pub(in crate::shared) count: usize,
    /// The first decision. Each following one is the [next](Decision::next_alike) of the one
    /// before.
    pub(in crate::shared) first: Decision,
}

impl SubjectOps {
    pub(in crate::shared) fn ops(&self) -> usize {
        self.rows.iter().map(|(_, count)| count).sum()
    }

    /// The most units that the operations charge together if the limit is `most` units; `None` if
    /// only the store can determine it.
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
