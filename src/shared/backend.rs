//! Backends: what a limiter of all nodes needs from its store.

mod custom;
#[cfg(feature = "redis")]
mod redis;

use std::{fmt, future::Future, time::Duration};

use tokio::{runtime::Handle, time::Instant};

use super::{
    batching::{SubjectAnswer, SubjectOps},
    ledger::Letter,
    subject::SubjectName,
    wire::arguments::{Plan, TierPlan},
};
use crate::{
    clock::ManualClock,
    decision::Op,
    limiter::tier_set::Chosen,
    store::{call_size::CallSize, error::StoreError, health::StoreHealth, stats::StoreStats},
};

/// A store that a [`SharedLimiter`](super::SharedLimiter) can be on: every [`Store`](super::Store),
/// and Redis, for which there is [`RedisLimiter`](crate::RedisLimiter). Nothing else implements it.
pub trait StoreBackend: Sized + Send + Sync + 'static {
    /// The client through which a limiter calls the store.
    #[doc(hidden)]
    #[allow(private_bounds, reason = "nobody else implements it")]
    type Client: Client<Store = Self>;
}

/// The client through which one limiter calls its store.
pub(super) trait Client: fmt::Debug + Send + Sync + 'static {
    type Store;

    /// A call's place among those under way.
    type Place: Send + 'static;

    /// The client of one limiter. `clock` replaces that of a server, for tests.
    fn new(store: Self::Store, clock: Option<ManualClock>) -> Self;

    fn store(&self) -> &Self::Store;

    /// The beginning of all keys' names.
    fn prefix(&self) -> &str;

    /// Prepares the store for decisions by these quotas.
    fn prepare(&self, plan: &Plan);

    /// The runtime that calls are driven on, if there is one.
    fn runtime(&self) -> Option<Handle>;

    /// How long an operation waits at most.
    fn deadline(&self) -> Duration;

    /// The error with which a call about this subject would fail at once.
    fn refusal(&self, subject: &SubjectName) -> Option<StoreError>;

    /// Counts a decision made without the store because of this error, which then names the store.
    fn go_without(&self, error: StoreError) -> StoreError;

    fn health(&self) -> StoreHealth;

    fn stats(&self) -> StoreStats;

    /// The most subjects of one call, at least one.
    fn most_subjects(&self) -> usize;

    /// An error if no answer about this subject can be expected in time, after this many others
    /// that wait.
    fn expect(&self, subject: &SubjectName, waiting: usize) -> Result<(), StoreError>;

    /// A place for a call of this size, whose first subject is this; an error at once if no answer
    /// can be expected `within` this time.
    fn enter(
        &self,
        first: &SubjectName,
        size: CallSize,
        within: Duration,
    ) -> Result<Self::Place, StoreError>;

    /// Whether an operation can be decided by a script for few operations, which takes calls of its
    /// own.
    fn is_simple(
        &self,
        plan: &Plan,
        chosen: Chosen,
        subject: &SubjectName,
        op: &Op,
        now: Instant,
    ) -> bool;

    /// How long an answer takes at present; `None` if that is not known.
    fn expected(&self) -> Option<Duration>;

    /// Decides all operations of a call: one answer for each subject.
    fn decide(
        &self,
        place: Self::Place,
        call: DecideCall<'_>,
    ) -> impl Future<Output = Vec<SubjectAnswer>> + Send;
}

/// Operations on subjects, decided by the quotas of one tier.
#[derive(Clone, Copy)]
pub(super) struct DecideCall<'a> {
    pub(super) plan: &'a Plan,
    pub(super) chosen: Chosen,
    pub(super) tier: &'a TierPlan,
    pub(super) questions: &'a [SubjectOps],
    /// For each question; none at all in strict mode.
    pub(super) letters: &'a [Letter],
}

impl DecideCall<'_> {
    fn letter(&self, at: usize) -> &Letter {
        self.letters.get(at).unwrap_or(&Letter::None)
    }
}
