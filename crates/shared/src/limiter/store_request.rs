//! Operations that only the store can decide: sent to it, or decided by the fallback.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{RedisFuture, SharedLimiter};
use crate::{
    batching::CallWindow as _,
    hashed_key_names::SubjectName,
    quotas_in_force::CurrentPlan,
    store_backend::{Client as _, StoreBackend},
};
use tower_ratelimit_core::{
    decision::{Decision, Op},
    error::LimiterError,
    limiter::{Charge, OwnedCharge, Pending, tier_set::Chosen},
};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

impl<S: StoreBackend> SharedLimiter<S> {
    /// Answers with a cached denial, or sends the operation. Compiled apart, so that decisions from a
    /// lease do not pay for its registers.
    #[inline(never)]
    pub(super) fn submit_to_store(
        &self,
        within: Duration,
        (charge, op): (&Charge<'_>, Op),
        (current, chosen): (&Arc<CurrentPlan>, Chosen),
        tag: Option<u64>,
    ) -> Pending<RedisFuture> {
        let (inner, key) = (&*self.0, charge.key);
        let subject = inner.subjects.of_key(&current.keyspace, key).tagged(tag);
        if let Some(denied) = inner.cached_denial(&subject, chosen, &op) {
            return Pending::Ready(Ok(denied));
        }
        inner.fallback.follow(key, &op);
        let request = StoreRequest {
            limiter: self.clone(),
            current: Arc::clone(current),
            chosen,
            charge: OwnedCharge::new(charge, op),
        };
        match inner.client.refusal(&subject) {
            Some(error) => Pending::Ready(request.fall_back(error)),
            None => request.send(subject, within),
        }
    }
}

/// An operation for the store, kept for the fallback.
struct StoreRequest<S: StoreBackend> {
    limiter: SharedLimiter<S>,
    current: Arc<CurrentPlan>,
    chosen: Chosen,
    charge: OwnedCharge,
}

impl<S: StoreBackend> StoreRequest<S> {
    /// Sends the operation, and waits for the answer until the deadline, but no longer than
    /// `within`.
    fn send(self, subject: SubjectName, within: Duration) -> Pending<RedisFuture> {
        let inner = &*self.limiter.0;
        let Some(runtime) = inner.client.runtime() else {
            return Pending::Ready(self.fall_back(StoreError::no_runtime()));
        };
        let entered = runtime.enter();
        let (current, op) = (Arc::clone(&self.current), Op::clone(&self.charge.op));
        let deadline = inner.client.deadline();
        let (now, within) = (Instant::now(), within.min(deadline));
        let answer = inner.send(subject, current, (self.chosen, op), now);
        let answer = timeout_at(now + within, answer);
        drop(entered);
        Pending::Later(Box::pin(async move {
            let error = match answer.await {
                Ok(Ok(Ok(decision))) => return Ok(decision),
                Ok(Ok(Err(error))) => error,
                Ok(Err(_)) => StoreError::abandoned(),
                Err(_) => StoreError::timeout(within),
            };
            self.fall_back(error)
        }))
    }

    fn fall_back(&self, error: StoreError) -> Result<Decision, LimiterError> {
        // A call outside a runtime is a mistake of the caller, not a failure of the store.
        if error.kind() == StoreErrorKind::NoRuntime {
            return Err(LimiterError::unavailable(error));
        }
        let inner = &*self.limiter.0;
        let error = inner.client.record_degraded(error);
        let policies = self.current.policies(self.chosen);
        let reason = error.degradation();
        let decision = inner
            .fallback
            .decide(&self.charge.as_ref(), &policies, reason);
        decision.unwrap_or_else(|| Err(LimiterError::unavailable(error).logged()))
    }
}
