//! Any kind of limiter behind one type.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use super::{Limiter, Pending, Tier, handle::handle_methods};
use crate::{
    decision::Op,
    decision::{Decision, Policy},
    error::LimiterError,
    key::Key,
};

/// A limiter of whatever kind the configuration chose: in this process while developing, through
/// Redis in production. A layer around one is `RateLimitLayer<AnyLimiter>`, whichever it is.
///
/// Clones are handles to the same limiter. An answer that is there at once, as a local limiter's
/// is, costs one call through a pointer more; a future is boxed only where the limiter has to be
/// waited for. That, and tiers, are what a [`BoxedLimiter`](super::BoxedLimiter) is not: that one
/// turns an [`AsyncLimiter`](super::AsyncLimiter) into a limiter and boxes every call.
///
/// ```
/// use tower_ratelimit::{AnyLimiter, Key, LocalLimiter, PeerIp, Quota, RateLimitLayer};
///
/// fn limiter(redis: Option<&str>) -> Result<AnyLimiter, tower_ratelimit::ConfigError> {
///     let quota = Quota::per_second(10).burst(20).named("api");
///     match redis {
///         # #[cfg(feature = "redis")]
///         Some(url) => Ok(AnyLimiter::new(tower_ratelimit::RedisLimiter::connect(url, quota)?)),
///         _ => Ok(AnyLimiter::new(LocalLimiter::try_new(quota)?)),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layer: RateLimitLayer<AnyLimiter> = RateLimitLayer::new(limiter(None)?, PeerIp);
/// let left = layer.limiter().peek(&Key::from("alice"), 1).await?;
/// assert_eq!(left.remaining(), Some(20));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AnyLimiter(Arc<dyn Erased>);

/// The future of an answer that an [`AnyLimiter`] has to wait for.
type AnyFuture = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

/// A [`Limiter`] without its type of future.
trait Erased: Send + Sync {
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<AnyFuture>;

    fn policies(&self) -> &[Policy];

    fn supports(&self, op: &Op) -> bool;

    fn blocks(&self) -> bool;

    fn identity(&self) -> Option<usize>;

    fn epoch(&self, limit: usize) -> u32;
}

impl<L: Limiter> Erased for L {
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<AnyFuture> {
        match Limiter::apply_in(self, tier, key, op) {
            Pending::Ready(answer) => Pending::Ready(answer),
            Pending::Later(future) => Pending::Later(Box::pin(future)),
        }
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(self)
    }

    fn supports(&self, op: &Op) -> bool {
        Limiter::supports(self, op)
    }

    fn blocks(&self) -> bool {
        Limiter::blocks(self)
    }

    fn identity(&self) -> Option<usize> {
        Limiter::identity(self)
    }

    fn epoch(&self, limit: usize) -> u32 {
        Limiter::epoch(self, limit)
    }
}

impl AnyLimiter {
    /// The limiter without its type.
    #[must_use]
    pub fn new(limiter: impl Limiter) -> Self {
        Self(Arc::new(limiter))
    }
}

handle_methods!(AnyLimiter);

impl Limiter for AnyLimiter {
    type Future = AnyFuture;

    fn apply(&self, key: &Key, op: Op) -> Pending<AnyFuture> {
        self.0.apply_in(&Tier::DEFAULT, key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<AnyFuture> {
        self.0.apply_in(tier, key, op)
    }

    fn policies(&self) -> &[Policy] {
        self.0.policies()
    }

    fn supports(&self, op: &Op) -> bool {
        self.0.supports(op)
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn identity(&self) -> Option<usize> {
        let own = || Arc::as_ptr(&self.0).addr();
        self.0.identity().or_else(|| Some(own()))
    }

    fn epoch(&self, limit: usize) -> u32 {
        self.0.epoch(limit)
    }
}

impl fmt::Debug for AnyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyLimiter")
            .field("policies", &self.0.policies())
            .finish_non_exhaustive()
    }
}
