use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    algorithm::{ClockSkew, Meter},
    decision::Policy,
    quota::Quota,
};

/// A quota that is read for every request and hardly ever changed: until it is, reading it takes
/// no lock.
#[derive(Debug)]
pub(super) struct LiveQuota {
    first: (Meter, Policy),
    changed: AtomicBool,
    current: RwLock<(Meter, Policy)>,
}

impl LiveQuota {
    pub(super) fn new(quota: &Quota, policy: Policy) -> Self {
        let first = (Meter::new(quota, ClockSkew::Threads), policy);
        Self {
            first,
            changed: AtomicBool::new(false),
            current: RwLock::new(first),
        }
    }

    #[inline]
    pub(super) fn read(&self) -> (Meter, Policy) {
        if !self.changed.load(Ordering::Acquire) {
            return self.first;
        }
        *self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn replace(&self, quota: &Quota) {
        let name = self.first.1.name();
        let new = (
            Meter::new(quota, ClockSkew::Threads),
            Policy::of_quota(name, quota),
        );
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        self.changed.store(true, Ordering::Release);
    }
}
