//! Limits that deny a request without an end of it, among several that decided together.

use super::Decision;
use crate::decision::quota_status_without_name::Status;

impl Decision {
    fn statuses_of(&self, limit: usize) -> &[Status] {
        &self.statuses()[self.places_of(limit)]
    }

    /// The indices of the limits that deny a request which passes nevertheless, since each of them may `overflow`. Empty
    /// if another one of the `limits` denies, if none does, or if a key is blocked. The quotas of such a limit deny even if
    /// the decision is allowed, because others charged the request.
    pub(crate) fn overflowed(&self, limits: usize, overflow: impl Fn(usize) -> bool) -> Vec<usize> {
        let denies = |limit: &usize| self.statuses_of(*limit).iter().any(Status::is_denied);
        let denying: Vec<usize> = (0..limits).filter(denies).collect();
        if self.is_blocked() || !denying.iter().all(|limit| overflow(*limit)) {
            return Vec::new();
        }
        denying
    }

    /// The indices of the limits that deny the request and may `overflow`, whether or not another one denies it. A limit
    /// whose key is blocked is not among them.
    pub(crate) fn overflowing(&self, overflow: &[bool]) -> Vec<usize> {
        let limits = (0..overflow.len()).filter(|limit| overflow[*limit]);
        let denying = limits.filter(|limit| {
            let own = self.statuses_of(*limit);
            own.iter().any(Status::is_denied) && !own.iter().any(Status::is_blocked)
        });
        denying.collect()
    }

    /// Reverts the denials by one of the limits, which charged nothing.
    pub(crate) fn pardon(&mut self, limit: usize) {
        let places = self.places_of(limit);
        for quota in &mut self.quotas.as_mut_slice()[places] {
            quota.pardon();
        }
    }
}
