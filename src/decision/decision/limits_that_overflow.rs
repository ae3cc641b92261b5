//! Limits that deny a request without an end of it, among several that decided together.

use super::Decision;
use crate::decision::quota_status_without_name::Status;

impl Decision {
    fn statuses_of(&self, limit: usize) -> &[Status] {
        &self.statuses()[self.places_of(limit)]
    }

    /// The indices of those of the `limits` that deny the request. The quotas of such a limit deny even if the decision
    /// is allowed, because others charged the request.
    pub(crate) fn denying(&self, limits: usize) -> impl Iterator<Item = usize> {
        (0..limits).filter(|limit| self.statuses_of(*limit).iter().any(Status::is_denied))
    }

    /// Whether the key of a limit is blocked.
    pub(crate) fn is_blocked_by(&self, limit: usize) -> bool {
        self.statuses_of(limit).iter().any(Status::is_blocked)
    }

    /// Whether the request passes despite a denial: each of the `limits` that denies may `overflow`, and no key is
    /// blocked.
    pub(crate) fn overflows(&self, limits: usize, overflow: impl Fn(usize) -> bool) -> bool {
        let mut denying = self.denying(limits).peekable();
        !self.is_blocked() && denying.peek().is_some() && denying.all(overflow)
    }

    /// Reverts the denials by one of the limits, which charged nothing.
    pub(crate) fn pardon(&mut self, limit: usize) {
        let places = self.places_of(limit);
        for quota in &mut self.quotas.as_mut_slice()[places] {
            quota.pardon();
        }
    }
}
