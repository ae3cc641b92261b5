//! Formats that nodes and stores share: calls, the script's arguments, replies, and values in bytes.

#![cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]

mod arguments;
#[cfg(test)]
mod constants;
pub(super) mod node_message;
pub(super) mod node_rows;
pub(super) mod plan;
pub(super) mod reply;
pub(super) mod stored_value;

use std::{iter, time::Duration};

use self::{
    node_message::{NodeMessage, NodeReply},
    plan::Plan,
    reply::{LastStates, Question, Run, SubjectReply},
};
use tower_ratelimit_core::{
    decision::{Decision, Op},
    limiter::tier_set::Chosen,
    small_list::SmallList,
};
use tower_ratelimit_store::error::StoreError;

/// Operations on the value of one key, to be done in one step.
///
/// A [store](crate::Store) that keeps bytes writes the value that [`apply`](Self::apply) returns.
#[derive(Debug, Clone, Copy)]
pub struct StoreCall<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) tier: Chosen,
    pub(crate) runs: &'a [(Op, usize)],
    pub(crate) message: Option<&'a NodeMessage>,
    /// Whether runs have the states that they left, which only a node with a ledger reads: those of long windows are large.
    pub(crate) keeps_states: bool,
}

/// A call that outlives the request of its node.
#[doc(hidden)]
#[derive(Debug)]
pub struct LateCall {
    plan: Plan,
    tier: Chosen,
    runs: Vec<(Op, usize)>,
    message: Option<NodeMessage>,
}

/// The reply to a [`StoreCall`]: each operation's outcome, for the limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(ReplyOf);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyOf {
    /// A script's.
    Text(Vec<u8>),
    /// The reply of [`StoreCall::apply`].
    Decided(SubjectReply),
}

/// The outcome of [`StoreCall::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The reply, to be sent once the value is written.
    pub reply: Reply,
    /// The new value; `None` if it does not change, as after a denial.
    pub write: Option<Write>,
}

/// A value for a store to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write {
    /// The bytes.
    pub value: Vec<u8>,
    /// The time until the value is as good as none: in whole milliseconds, at least one. A store may
    /// keep the value for longer.
    pub expires_in: Duration,
}

impl Write {
    /// Creates a value of your own, for a [`CompareAndSwap`](super::CompareAndSwap) used without a
    /// limiter.
    pub const fn new(value: Vec<u8>, expires_in: Duration) -> Self {
        Self { value, expires_in }
    }
}

impl<'a> StoreCall<'a> {
    pub(crate) const fn new(plan: &'a Plan, tier: Chosen, runs: &'a [(Op, usize)]) -> Self {
        Self {
            plan,
            tier,
            runs,
            message: None,
            keeps_states: false,
        }
    }

    /// The node's message about its units, if the call carries one.
    #[doc(hidden)]
    pub const fn message(&self) -> Option<&'a NodeMessage> {
        self.message
    }

    /// An owned copy, for simulations of calls that outlive their request.
    #[doc(hidden)]
    pub fn to_late(&self) -> LateCall {
        LateCall {
            plan: Plan::new(&self.plan.limits),
            tier: self.tier,
            runs: self.runs.to_vec(),
            message: self.message.copied(),
        }
    }

    /// The decision about each operation.
    #[cfg(test)]
    pub(super) fn decisions(&self, reply: Reply) -> Result<Vec<Decision>, StoreError> {
        match self.explained(reply)?.0.0 {
            ReplyOf::Decided(answered) => {
                Ok(answered.runs.into_iter().map(|run| run.decision).collect())
            }
            ReplyOf::Text(_) => Ok(Vec::new()),
        }
    }

    /// A reply as the decision about each operation, and the answer to the message; and what a node shows from the states of
    /// each run, at once and later. Two with the same are equal, however each writes a state.
    ///
    /// # Errors
    ///
    /// [`ForeignData`](tower_ratelimit_store::StoreErrorKind::ForeignData) if it is no reply to this call.
    #[doc(hidden)]
    pub fn explained(&self, reply: Reply) -> Result<(Reply, Vec<Decision>), StoreError> {
        let plan = self.plan.of(self.tier);
        let plan = plan.ok_or_else(|| StoreError::foreign("there is no such tier"))?;
        let mut answered = reply::of_store(reply, &plan.reply, self)?;
        let later = |run: &Run| {
            let known = LastStates::new(&plan.reply, run);
            let quotas = run.decision.quotas();
            let third = quotas.filter_map(|quota| quota.reset_after()).max();
            let third = third.unwrap_or_default() / 3;
            let third = u64::try_from(third.as_nanos()).unwrap_or_default();
            let question = Question {
                own: 0,
                cost: 1,
                class: known.class(),
            };
            [0, 1, 2].map(|thirds| known.explain(question, thirds * third).1)
        };
        let runs = answered.runs.iter().filter(|_| self.keeps_states);
        let later = runs.flat_map(later).collect();
        let single = |run: Run| {
            let (count, states) = (run.count, SmallList::default());
            let single = Run {
                count: 1,
                states,
                ..run
            };
            iter::repeat_n(single, count)
        };
        answered.runs = answered.runs.into_iter().flat_map(single).collect();
        Ok((Reply::decided(answered), later))
    }

    /// Adds a node's message: the reply to the call ends with the reply to the message, see
    /// [`NodeReply::split`](message::NodeReply::split).
    #[doc(hidden)]
    #[must_use]
    pub const fn with_message(self, message: &'a NodeMessage) -> Self {
        Self {
            message: Some(message),
            ..self
        }
    }

    /// Requests the states that the operations leave.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_states(self) -> Self {
        Self {
            keeps_states: true,
            ..self
        }
    }

    /// Drops the operations and keeps the message.
    #[doc(hidden)]
    #[must_use]
    pub const fn without_ops(self) -> Self {
        Self { runs: &[], ..self }
    }
}

impl LateCall {
    /// The call.
    pub fn call(&self) -> StoreCall<'_> {
        StoreCall {
            plan: &self.plan,
            tier: self.tier,
            runs: &self.runs,
            message: self.message.as_ref(),
            keeps_states: false,
        }
    }
}

impl Reply {
    /// The reply of the script.
    #[doc(hidden)]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(ReplyOf::Text(bytes))
    }

    pub(super) const fn decided(answered: SubjectReply) -> Self {
        Self(ReplyOf::Decided(answered))
    }

    /// The store's answer to the message of the call, which had one.
    #[doc(hidden)]
    pub fn to_message(&self) -> Option<NodeReply> {
        match &self.0 {
            ReplyOf::Text(text) => NodeReply::split(text).map(|(_, answer)| answer),
            ReplyOf::Decided(answered) => answered.lease.as_deref().copied(),
        }
    }
}
