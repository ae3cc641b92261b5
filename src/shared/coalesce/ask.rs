//! The call to the server that carries the operations of one or more subjects.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::convoy::{SubjectAnswer, SubjectOps};
use crate::{
    decision::Op,
    limiter::tier_set::Chosen,
    shared::subject::SubjectName,
    store::{call_size::CallSize, error::StoreError},
};

/// Asks the server about subjects.
pub(in crate::shared) trait Ask<P>: Send + Sync + 'static {
    /// A call's place among those that are under way.
    type Place: Send + 'static;

    /// The most subjects of one call, at least one.
    fn most_subjects(&self) -> usize;

    /// An error when an answer about this subject, after this many others that wait, is not to be
    /// expected in time.
    fn expect(&self, subject: &SubjectName, waiting: usize) -> Result<(), StoreError>;

    /// A place for a call of this size, whose first subject is this; an error at once when an
    /// answer `within` this time is not to be expected.
    fn enter(
        &self,
        first: &SubjectName,
        size: CallSize,
        within: Duration,
    ) -> Result<Self::Place, StoreError>;

    /// Has the server answer the questions by the quotas of one tier, all of them
    /// simple or none: of each question one row after another. The rows of an answer may be shorter and more. There is one answer for each
    /// question.
    fn ask(
        &self,
        place: Self::Place,
        plan: &Arc<P>,
        tier: Chosen,
        questions: &[SubjectOps],
    ) -> impl Future<Output = Vec<SubjectAnswer>> + Send;

    /// Whether an operation on the subject is one for the script that knows few operations, which
    /// takes calls of its own.
    fn is_simple(
        &self,
        plan: &P,
        tier: Chosen,
        subject: &SubjectName,
        op: &Op,
        now: Instant,
    ) -> bool;

    /// How long an answer takes at present; `None` when that is not known.
    fn expected(&self) -> Option<Duration>;

    /// How long an operation waits at most.
    fn deadline(&self) -> Duration;
}
