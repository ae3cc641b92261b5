//! `SingleBucket`: limits whose whole state of a key is one instant.

use super::TierSet;
use crate::{
    algorithm::{Bucket, ClockSkew},
    decision::Policy,
    limiter::per_request_quota::OwnQuota,
    quota::Fitted,
};

/// The limits of a limiter whose whole state of a key is one instant.
#[derive(Debug, Clone)]
pub(crate) struct SingleBucket {
    pub(crate) measured: (Bucket, Policy),
    pub(crate) own: OwnQuota,
}

impl TierSet {
    /// The single quota, if the whole state of a key is one instant.
    pub(crate) fn single_bucket(&self) -> Option<SingleBucket> {
        if self.block_for.is_some() {
            return None;
        }
        let [(_, quotas)] = self.tiers.as_slice() else {
            return None;
        };
        let (policy, own) = (quotas.policies.first()?, self.own.clone()?);
        let bucket = Bucket::new(&own.quota, own.most, ClockSkew::Threads)?;
        Some(SingleBucket {
            measured: (bucket, policy.clone()),
            own,
        })
    }
}

impl SingleBucket {
    /// The bucket of a request's own quota, which shares the counter.
    pub(crate) fn of_request(&self, fitted: Fitted) -> Option<(Bucket, Policy)> {
        let quota = self.own.with(fitted);
        let bucket = Bucket::new(&quota, self.own.most, ClockSkew::Threads)?;
        Some((bucket, self.own.policy.with_quota(&quota)))
    }
}
