//! Setting and ending of quota overrides.

use std::{
    sync::PoisonError,
    time::{Duration, SystemTime},
};

use tower_ratelimit::{Limiter as _, LocalLimiter, Quota, limiter::QuotaChange};

use super::{
    Source,
    quota_overrides::{NewQuota, QuotaOverride},
};

impl Source {
    pub(crate) fn overridden(&self, policy: &str) -> Option<QuotaOverride> {
        let quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        quotas.by_policy.get(policy).cloned()
    }

    /// Overrides a quota of the files. Returns the effect on a key that had used up the old quota, for a rule of
    /// requests.
    ///
    /// # Errors
    ///
    /// When the policy does not exist, or cannot have the quota.
    pub(crate) fn set_quota(
        &self,
        policy: &str,
        new_quota: NewQuota,
        ttl: Option<Duration>,
    ) -> Result<Option<QuotaChange>, String> {
        let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        quotas.count += 1;
        let number = quotas.count;
        let change = self.apply(policy, new_quota)?;
        let (text, limit, window) = match new_quota {
            NewQuota::Quota(quota) => (quota.to_string(), quota.capacity(), window(quota)),
            NewQuota::Units(units) => (units.to_string(), units.into(), None),
        };
        let quota = QuotaOverride {
            text,
            limit,
            window,
            until: ttl.and_then(|ttl| SystemTime::now().checked_add(ttl)),
            of_requests: change.is_some(),
            number,
        };
        quotas.by_policy.insert(policy.to_owned(), quota);
        if let Some(ttl) = ttl {
            let (source, policy) = (self.clone(), policy.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(ttl).await;
                source.end_quota(&policy, Some(number));
            });
        }
        Ok(change)
    }

    /// Applies an override. Returns its effect on keys, for a rule of requests.
    fn apply(&self, policy: &str, new_quota: NewQuota) -> Result<Option<QuotaChange>, String> {
        match new_quota {
            NewQuota::Quota(quota) => {
                let auth = self
                    .0
                    .auth
                    .as_ref()
                    .ok_or("there are no rules of requests")?;
                let set = auth.set_quota(policy, Some(quota));
                set.map(Some).map_err(|error| error.to_string())
            }
            NewQuota::Units(units) => {
                let limits = &self.0.limits;
                limits.override_by(|overrides| _ = overrides.requests.insert(policy.into(), units));
                Ok(None)
            }
        }
    }

    /// Restores the quota of the files. Returns whether there was an override. With a number, ends only that override.
    pub(crate) fn end_quota(&self, policy: &str, number: Option<u64>) -> bool {
        let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        let known = quotas.by_policy.get(policy);
        let Some(known) = known.filter(|known| number.is_none_or(|number| number == known.number))
        else {
            return false;
        };
        match (&self.0.auth, known.of_requests) {
            // Fails if a reload removed the rule.
            (Some(auth), true) => drop(auth.set_quota(policy, None)),
            _ => {
                let limits = &self.0.limits;
                limits.override_by(|overrides| _ = overrides.requests.remove(policy));
            }
        }
        quotas.by_policy.remove(policy);
        true
    }
}

/// The seconds of a quota's window in header fields.
fn window(quota: Quota) -> Option<u64> {
    let limiter = LocalLimiter::builder(quota).max_keys(1).build().ok()?;
    let window = limiter.policies().first()?.window()?;
    Some(window.as_secs())
}
