//! Quotas by hand: put in place of those of the files, and ended.

use std::{
    sync::PoisonError,
    time::{Duration, SystemTime},
};

use tower_ratelimit::{Limiter as _, LocalLimiter, Quota, limiter::QuotaChange};

use super::{
    Source,
    quotas::{Instead, Overridden},
};

impl Source {
    pub(crate) fn overridden(&self, policy: &str) -> Option<Overridden> {
        let quotas = self.0.quotas.lock();
        let quotas = quotas.unwrap_or_else(PoisonError::into_inner);
        quotas.by_policy.get(policy).cloned()
    }

    /// Puts a quota in place of that of the files. Says what a key gets that had used up the quota of before, for a
    /// rule of requests.
    ///
    /// # Errors
    ///
    /// When there is no such policy, or the quota cannot be its.
    pub(crate) fn set_quota(
        &self,
        policy: &str,
        instead: Instead,
        ttl: Option<Duration>,
    ) -> Result<Option<QuotaChange>, String> {
        let quotas = self.0.quotas.lock();
        let mut quotas = quotas.unwrap_or_else(PoisonError::into_inner);
        quotas.count += 1;
        let number = quotas.count;
        let change = self.put(policy, instead)?;
        let (told, limit, window) = match instead {
            Instead::Quota(quota) => (quota.to_string(), quota.capacity(), window(quota)),
            Instead::Units(units) => (units.to_string(), units.into(), None),
        };
        let quota = Overridden {
            told,
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

    /// Puts it into force. Says what that means for keys, for a quota of a rule of requests.
    fn put(&self, policy: &str, instead: Instead) -> Result<Option<QuotaChange>, String> {
        match instead {
            Instead::Quota(quota) => {
                let auth = self.0.auth.as_ref();
                let auth = auth.ok_or("there are no rules of requests")?;
                let set = auth.set_quota(policy, Some(quota));
                set.map(Some).map_err(|error| error.to_string())
            }
            Instead::Units(units) => {
                let limits = &self.0.limits;
                limits.override_by(|overrides| _ = overrides.requests.insert(policy.into(), units));
                Ok(None)
            }
        }
    }

    /// Goes back to the quota of the files; says whether there was another one. With a number, only from that one.
    pub(crate) fn end_quota(&self, policy: &str, number: Option<u64>) -> bool {
        let quotas = self.0.quotas.lock();
        let mut quotas = quotas.unwrap_or_else(PoisonError::into_inner);
        let known = quotas.by_policy.get(policy);
        let Some(known) = known.filter(|known| number.is_none_or(|number| number == known.number))
        else {
            return false;
        };
        match (&self.0.auth, known.of_requests) {
            // Fails when the rule is gone, and its quota with it.
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

/// The seconds of a quota's window, as header fields have it.
fn window(quota: Quota) -> Option<u64> {
    let limiter = LocalLimiter::builder(quota).max_keys(1).build().ok()?;
    let window = limiter.policies().first()?.window()?;
    Some(window.as_secs())
}
