//! The interface between a limiter of all nodes and its store.

use std::{fmt, future::Future};

use tokio::{runtime::Handle, time::Instant};

use super::{
    batching::{BatchCall, CallWindow, SubjectOps},
    hashed_key_names::SubjectName,
    ledger::AttachedMessage,
    wire::{
        StoreCall,
        plan::{Plan, TierPlan},
        reply::SubjectResult,
    },
};
use tower_ratelimit_core::{
    clock::ManualClock,
    decision::{Op, Policy},
    error::ConfigError,
    limiter::limit::Chosen,
    quota::OwnedQuota,
};
use tower_ratelimit_store::{error::StoreError, health::StoreHealth, stats::StoreStats};

/// A store of a [`SharedLimiter`](super::SharedLimiter): every [`Store`](super::Store), and Redis,
/// which has the [`RedisLimiter`](crate::limiter::RedisLimiter). Nothing else implements it.
pub trait StoreBackend: Sized + Send + Sync + 'static {
    /// The client through which a limiter calls the store.
    #[doc(hidden)]
    #[allow(private_bounds, reason = "nobody else implements it")]
    type Client: Client<Store = Self>;
}

pub(super) trait Client: CallWindow + fmt::Debug {
    type Store;

    /// Creates the client of one limiter. `clock` replaces the server's, for tests.
    fn new(store: Self::Store, clock: Option<ManualClock>) -> Self;

    fn store(&self) -> &Self::Store;

    /// The beginning of all keys' names.
    fn prefix(&self) -> &str;

    /// Checks whether a limiter with these policies, perhaps charged together with others, can have the quota.
    fn accepts(&self, _: &OwnedQuota, _policies: &[Policy]) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Prepares the store for decisions by these quotas.
    fn prepare(&self, plan: &Plan);

    /// The runtime that drives calls, if any.
    fn runtime(&self) -> Option<Handle>;

    /// The error with which a call about this subject would fail at once, if any.
    fn refusal(&self, subject: &SubjectName) -> Option<StoreError>;

    /// Counts a decision made without the store because of this error, which then names the store.
    fn record_degraded(&self, error: StoreError) -> StoreError;

    fn health(&self) -> StoreHealth;

    fn stats(&self) -> StoreStats;

    /// Whether a specialized script can decide an operation on the subject.
    fn is_specialized(
        &self,
        plan: &Plan,
        chosen: Chosen,
        subject: &SubjectName,
        op: &Op,
        now: Instant,
    ) -> bool;

    /// Decides all operations of a call. Returns one answer for each subject.
    fn decide(&self, call: DecideCall<'_>) -> impl Future<Output = Vec<SubjectResult>> + Send;
}

/// Operations on subjects, decided by the quotas of one tier.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]
pub(super) struct DecideCall<'a> {
    pub(super) sent: &'a BatchCall,
    pub(super) tier: &'a TierPlan,
    /// One for each subject; empty in strict mode.
    pub(super) messages: &'a [AttachedMessage],
}

impl<'a> DecideCall<'a> {
    /// The message about the subject at this index.
    pub(super) fn message(&self, at: usize) -> &'a AttachedMessage {
        self.messages.get(at).unwrap_or(&AttachedMessage::None)
    }

    /// The operations of the subject at this index, and its message.
    pub(super) fn of(&self, at: usize, ops: &'a SubjectOps) -> StoreCall<'a> {
        StoreCall {
            message: self.message(at).message(),
            keeps_states: !self.messages.is_empty(),
            ..StoreCall::new(&self.sent.plan, self.sent.tier, &ops.runs)
        }
    }
}
