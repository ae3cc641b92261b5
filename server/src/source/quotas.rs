//! Quotas that operators put in place of those of the files, until these are read again.

use std::{
    collections::BTreeMap,
    sync::PoisonError,
    time::{Duration, SystemTime},
};

use tower_ratelimit::Quota;

use super::Source;

/// A quota in place of that of the files.
#[derive(Debug, Clone)]
pub(crate) struct Overridden {
    pub(crate) told: String,
    pub(crate) limit: u64,
    /// When it ends; `None` at the next reload.
    pub(crate) until: Option<SystemTime>,
    of_requests: bool,
    /// Which of those of one policy it is.
    number: u64,
}

/// The quotas by the names of policies, and how many there have been.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    by_policy: BTreeMap<String, Overridden>,
    count: u64,
}

impl Quotas {
    /// Forgets those of rules of requests, or of the others.
    pub(super) fn forget(&mut self, of_requests: bool) {
        self.by_policy
            .retain(|_, quota| quota.of_requests != of_requests);
    }
}

/// What is put in place of a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instead {
    /// The quota of a rule of requests.
    Quota(Quota),
    /// The units of a descriptor's limit.
    Units(u32),
}

impl Source {
    pub(crate) fn overridden(&self, policy: &str) -> Option<Overridden> {
        let quotas = self.0.quotas.lock();
        let quotas = quotas.unwrap_or_else(PoisonError::into_inner);
        quotas.by_policy.get(policy).cloned()
    }

    /// Puts a quota in place of that of the files.
    ///
    /// # Errors
    ///
    /// When there is no such policy, or the quota cannot be its.
    pub(crate) fn set_quota(
        &self,
        policy: &str,
        instead: Instead,
        ttl: Option<Duration>,
    ) -> Result<(), String> {
        let quotas = self.0.quotas.lock();
        let mut quotas = quotas.unwrap_or_else(PoisonError::into_inner);
        quotas.count += 1;
        let number = quotas.count;
        let (told, limit, of_requests) = match instead {
            Instead::Quota(quota) => {
                let auth = self
                    .0
                    .auth
                    .as_ref()
                    .ok_or("there are no rules of requests")?;
                let set = auth.set_quota(policy, Some(quota));
                set.map_err(|error| error.to_string())?;
                (quota.to_string(), quota.capacity(), true)
            }
            Instead::Units(units) => {
                let limits = &self.0.limits;
                limits.override_by(|overrides| _ = overrides.requests.insert(policy.into(), units));
                (units.to_string(), units.into(), false)
            }
        };
        let quota = Overridden {
            told,
            limit,
            until: ttl.and_then(|ttl| SystemTime::now().checked_add(ttl)),
            of_requests,
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
        Ok(())
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
