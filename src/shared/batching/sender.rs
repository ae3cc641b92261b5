//! The interface between the batcher and the store's client.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::subject_ops::{SubjectAnswer, SubjectOps};
use crate::limiter::tier_set::Chosen;

/// The calls that a store accepts now.
pub(in crate::shared) trait CallWindow: Send + Sync + 'static {
    /// The most subjects of one call, at least one.
    fn most_subjects(&self) -> usize;

    /// How long an answer takes now; `None` if it is not known.
    fn expected(&self) -> Option<Duration>;

    /// The longest wait of an operation.
    fn deadline(&self) -> Duration;
}

/// Sends calls to the store.
pub(in crate::shared) trait CallSender<P>: Send + Sync + 'static {
    type Window: CallWindow;

    fn window(&self) -> &Self::Window;

    /// Sends the operations of these subjects, to be decided by the quotas of one tier. Either all
    /// subjects are simple or none is. Nobody waits any more `until` then. Returns one answer for each
    /// subject. An answer may split a row into several.
    fn send(
        &self,
        until: Instant,
        plan: &Arc<P>,
        tier: Chosen,
        subjects: &[SubjectOps],
    ) -> impl Future<Output = Vec<SubjectAnswer>> + Send;
}
