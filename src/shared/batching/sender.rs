//! The interface between the batcher and the store's client.

use std::{future::Future, sync::Arc, time::Duration};

use super::subject_ops::{SubjectAnswer, SubjectOps};
use crate::{
    limiter::tier_set::Chosen,
    shared::hashed_key_names::SubjectName,
    store::{call_size::CallSize, error::StoreError},
};

/// The calls that a store accepts now.
pub(in crate::shared) trait CallWindow: Send + Sync + 'static {
    /// A call's place among those in flight.
    type Place: Send + 'static;

    /// The most subjects of one call, at least one.
    fn most_subjects(&self) -> usize;

    /// Fails if no answer about this subject is expected in time behind `waiting` others.
    fn expect(&self, subject: &SubjectName, waiting: usize) -> Result<(), StoreError>;

    /// Reserves a place for a call of this size whose first subject is `first`. Fails at once if no
    /// answer is expected `within` this time.
    fn enter(
        &self,
        first: &SubjectName,
        size: CallSize,
        within: Duration,
    ) -> Result<Self::Place, StoreError>;

    /// The expected response time now; `None` if it is not known.
    fn expected(&self) -> Option<Duration>;

    /// The longest wait of an operation.
    fn deadline(&self) -> Duration;
}

/// Sends calls to the store.
pub(in crate::shared) trait CallSender<P>: Send + Sync + 'static {
    type Window: CallWindow;

    fn window(&self) -> &Self::Window;

    /// Sends the operations of these subjects, to be decided by the quotas of one tier. Either all
    /// subjects are simple or none is. Returns one answer for each subject. An answer may split a
    /// row into several.
    fn send(
        &self,
        place: PlaceOf<Self, P>,
        plan: &Arc<P>,
        tier: Chosen,
        subjects: &[SubjectOps],
    ) -> impl Future<Output = Vec<SubjectAnswer>> + Send;
}

/// The place of a sender's call.
pub(super) type PlaceOf<S, P> = <<S as CallSender<P>>::Window as CallWindow>::Place;
