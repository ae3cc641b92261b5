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

pub use self::reply::{Applied, Reply, Write};
use self::{node_message::NodeMessage, plan::Plan};
use tower_ratelimit_core::{decision::Op, limiter::limit::Chosen};

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
