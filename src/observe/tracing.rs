use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::{debug, trace, warn};

use super::{Decided, Event, Observer};

/// Writes `tracing` events, never with a key in them.
///
/// | what happened | level |
/// |---|---|
/// | allowed, bypassed | `TRACE` |
/// | denied, or would be by a shadow; no key | `DEBUG` |
/// | the limiter fails | `WARN`, once when it begins and `DEBUG` while it lasts |
///
/// A layer gets it by `.observer(TracingObserver::new())`. Decisions come with the policy, its limit,
/// the cost and the latency of the check.
#[derive(Debug, Default)]
pub struct TracingObserver {
    failing: AtomicBool,
}

impl TracingObserver {
    /// An observer that writes to the subscriber of the moment.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            failing: AtomicBool::new(false),
        }
    }

    fn decided(&self, decided: &Decided<'_>) {
        self.failing.store(false, Ordering::Relaxed);
        let quota = decided.decision().binding();
        if decided.decision().is_denied() {
            debug!(
                policy = quota.name(),
                limit = quota.limit(),
                cost = decided.cost(),
                retry_after = ?quota.retry_after(),
                shadow = decided.is_shadow(),
                latency = ?decided.latency(),
                "rate limit exceeded"
            );
        } else {
            trace!(
                policy = quota.name(),
                limit = quota.limit(),
                remaining = quota.remaining(),
                cost = decided.cost(),
                near_limit = decided.is_near_limit(),
                latency = ?decided.latency(),
                "request allowed"
            );
        }
    }
}

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Decided(decided) => self.decided(decided),
            Event::Bypassed { .. } => trace!("request not counted"),
            Event::Banned { .. } => debug!("request rejected by a deny list"),
            Event::KeyMissing { error, .. } => debug!(%error, "request rejected, it has no key"),
            Event::Failed { error, .. } => {
                if self.failing.swap(true, Ordering::Relaxed) {
                    debug!(error = *error as &dyn Error, "rate limiter still failing");
                } else {
                    warn!(error = *error as &dyn Error, "rate limiter failing");
                }
            }
        }
    }
}
