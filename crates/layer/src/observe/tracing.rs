//! `TracingObserver`: writes `tracing` events.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::{
    debug,
    field::{debug as debug_value, display},
    trace, warn,
};

use super::event::{Corrected, Decided, Event, Observer};
use tower_ratelimit_core::{decision::Degradation, error::LimiterError};

/// The target in the filters of operators: the path of this observer for users.
const TARGET: &str = "tower_ratelimit::observe::tracing";

/// Writes `tracing` events, without keys unless it [reveals](Self::reveal_keys) them.
///
/// | event | level |
/// |---|---|
/// | allowed, bypassed | `TRACE` |
/// | denied, also in shadow mode; overflowed; no key | `DEBUG` |
/// | the limiter fails, or fails to correct what a request cost | `WARN`, once when it begins and `DEBUG` while it lasts |
/// | the cost of a request was corrected | `TRACE` |
///
/// A layer uses it after `.observer(TracingObserver::new())`. Events of decisions have the policy, its
/// limit, the cost and the latency of the check. If they apply to the
/// [`Decision`](tower_ratelimit_core::Decision), they also have `waited`, `blocked`, `shed`, `overflowed`, `excess`, and
/// `degraded` with the reason.
#[derive(Debug, Default)]
pub struct TracingObserver {
    failing: AtomicBool,
    failing_corrections: AtomicBool,
    reveal_keys: bool,
}

impl TracingObserver {
    /// An observer that writes to the current subscriber.
    pub const fn new() -> Self {
        Self {
            failing: AtomicBool::new(false),
            failing_corrections: AtomicBool::new(false),
            reveal_keys: false,
        }
    }

    /// Sets whether events of decisions have the field `key`, as [`Key::reveal`](tower_ratelimit_core::Key::reveal)
    /// writes it. Defaults to false, because keys are personal data, and credentials unless they are
    /// digests: protect the logs accordingly.
    ///
    /// A digest is recognised by `Key::digest(value).reveal()`.
    #[must_use]
    pub const fn reveal_keys(mut self, reveal: bool) -> Self {
        self.reveal_keys = reveal;
        self
    }

    fn decided(&self, decided: &Decided<'_>, overflowed: bool) {
        self.failing.store(false, Ordering::Relaxed);
        let decision = decided.decision();
        let quota = decision.binding();
        // Only fields that apply are in the event.
        let mark = |so: bool| so.then_some(true);
        let degraded = decision.degraded_by().map(Degradation::as_str);
        let waited = (!decided.waited().is_zero()).then(|| debug_value(decided.waited()));
        let key = self.reveal_keys.then(|| display(decided.key().reveal()));
        if decision.is_denied() || overflowed {
            debug!(
                target: TARGET,
                policy = quota.name(),
                key,
                limit = quota.limit(),
                cost = decided.cost(),
                retry_after = ?quota.retry_after(),
                blocked = mark(decision.is_blocked()),
                shed = mark(decision.is_shed()),
                degraded,
                shadow = decided.is_shadow(),
                overflowed = mark(overflowed),
                latency = ?decided.latency(),
                waited,
                "rate limit exceeded"
            );
        } else {
            trace!(
                target: TARGET,
                policy = quota.name(),
                key,
                limit = quota.limit(),
                remaining = quota.remaining(),
                cost = decided.cost(),
                near_limit = decided.is_near_limit(),
                excess = mark(decision.is_excess()),
                degraded,
                latency = ?decided.latency(),
                waited,
                "request allowed"
            );
        }
    }

    fn corrected(&self, corrected: &Corrected<'_>) {
        if let Some(error) = corrected.error() {
            let part = "correction of what a request cost";
            return failed(&self.failing_corrections, error, part);
        }
        if corrected.after() != corrected.before() {
            self.failing_corrections.store(false, Ordering::Relaxed);
        }
        trace!(
            target: TARGET,
                policy = corrected.decision().binding().name(),
            before = corrected.before(),
            after = corrected.after(),
            "cost settled"
        );
    }
}

/// Warns when a failure begins; later failures are logged at `DEBUG`.
fn failed(failing: &AtomicBool, error: &LimiterError, part: &str) {
    let error = error as &dyn Error;
    if failing.swap(true, Ordering::Relaxed) {
        debug!(target: TARGET, error, "{part} still failing");
    } else {
        warn!(target: TARGET, error, "{part} failing");
    }
}

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Decided(decided) => self.decided(decided, false),
            Event::Overflowed(decided) => self.decided(decided, true),
            Event::Bypassed { .. } => trace!(target: TARGET, "request not counted"),
            Event::Banned { .. } => debug!(target: TARGET, "request rejected by a deny list"),
            Event::KeyMissing { error, .. } => {
                debug!(target: TARGET, %error, "request rejected, it has no key")
            }
            Event::Corrected(corrected) => self.corrected(corrected),
            Event::Failed { error, .. } => failed(&self.failing, error, "rate limiter"),
            // The layer logs the error itself.
            Event::RulesReloaded { rules, error } => {
                debug!(target: TARGET, rules, accepted = error.is_none(), "rules read again");
            }
        }
    }
}
