//! The trait of all limiters.

use std::{future::Future, time::Duration};

use super::{Pending, Tier};
use crate::{
    decision::Op,
    decision::{Decision, Policy, Receipt},
    error::LimiterError,
    key::Key,
};

/// A limiter: decides about one key at a time, and keeps what it needs for that.
///
/// A limiter that waits for something is easier to write as an
/// [`AsyncLimiter`](crate::limiter::AsyncLimiter).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a `Quota`, a `LocalLimiter`, a `GovernorLimiter`, or a `Limiter` of your own"
)]
pub trait Limiter: Send + Sync + 'static {
    /// What [`Pending::Later`] holds. A limiter that never waits says [`Never`](super::Never).
    type Future: Future<Output = Result<Decision, LimiterError>> + Send + 'static;

    /// Does `op` for `key` in one step, which no other operation on this key comes between.
    ///
    /// An answer that is there at once is returned as [`Pending::Ready`]: the layer then calls the
    /// inner service right away. A future that is dropped may or may not have done its work.
    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future>;

    /// Does `op` for `key` by the quotas of `tier`.
    ///
    /// A limiter without tiers need not know of them: by default every tier but
    /// [`Tier::DEFAULT`] is an error.
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        if tier.is_default() {
            return self.apply(key, op);
        }
        Pending::Ready(Err(tier.unknown()))
    }

    /// The policies that decisions are about, in the same order.
    fn policies(&self) -> &[Policy];

    /// Whether the limiter knows an operation like `op`. Defaults to true for all.
    ///
    /// A layer asks when it is built, and logs what will not work. An operation that is not
    /// supported is answered with an error of the kind
    /// [`Unsupported`](crate::LimiterErrorKind::Unsupported).
    fn supports(&self, op: &Op) -> bool {
        let _ = op;
        true
    }

    /// Whether [`Op::Deny`] and [`Op::Settle`] may start a block. Defaults to true.
    ///
    /// A limiter that never blocks says false, and layers save the operations that would tell it of
    /// denials, and of responses that cost what was reserved for them.
    fn blocks(&self) -> bool {
        true
    }

    /// The same number for all handles to one limiter, if it has one: with it a layer notices that
    /// a request was charged already.
    #[doc(hidden)]
    fn identity(&self) -> Option<usize> {
        None
    }

    /// The mark of the counters in force: another one where all keys have started afresh. Of several
    /// limits, that of the one at this place.
    #[doc(hidden)]
    fn epoch(&self, limit: usize) -> u32 {
        let _ = limit;
        0
    }

    /// Takes `cost` units if they are available.
    ///
    /// ```
    /// # async fn f(limiter: impl tower_ratelimit::Limiter) -> Result<(), tower_ratelimit::LimiterError> {
    /// let decision = limiter.acquire(&"alice".into(), 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    fn acquire(&self, key: &Key, cost: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Acquire(cost))
    }

    /// Takes what is available, at most `most` units.
    fn acquire_up_to(&self, key: &Key, most: u64) -> Pending<Self::Future> {
        self.apply(key, Op::AcquireUpTo(most))
    }

    /// Says what [`acquire`](Self::acquire) would say, and takes nothing.
    fn peek(&self, key: &Key, cost: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available.
    fn hit(&self, key: &Key, cost: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Hit(cost))
    }

    /// Adds `units` whatever the outcome, which is a denial if more is counted then than the limit.
    fn count(&self, key: &Key, units: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Count(units))
    }

    /// Gives back `cost` units: of the decision that `receipt` belongs to, once, or of the newest
    /// charge.
    fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Pending<Self::Future> {
        self.apply(key, Op::Refund(cost, receipt))
    }

    /// Denies the key everything for this long; zero ends a block.
    fn block(&self, key: &Key, block: Duration) -> Pending<Self::Future> {
        self.apply(key, Op::Block(block))
    }

    /// Forgets the key and ends its block.
    fn reset(&self, key: &Key) -> Pending<Self::Future> {
        self.apply(key, Op::Reset)
    }
}

impl<L: Limiter> Limiter for std::sync::Arc<L> {
    type Future = L::Future;

    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        L::apply(self, key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        L::apply_in(self, tier, key, op)
    }

    fn policies(&self) -> &[Policy] {
        L::policies(self)
    }

    fn supports(&self, op: &Op) -> bool {
        L::supports(self, op)
    }

    fn blocks(&self) -> bool {
        L::blocks(self)
    }

    fn identity(&self) -> Option<usize> {
        L::identity(self).or_else(|| Some(Self::as_ptr(self).addr()))
    }

    fn epoch(&self, limit: usize) -> u32 {
        L::epoch(self, limit)
    }
}
