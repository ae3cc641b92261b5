use std::{
    ops::Deref,
    sync::{
        PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
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

/// What is in force.
pub(super) enum InForce<'a> {
    First(&'a (Meter, Policy)),
    Current(RwLockReadGuard<'a, (Meter, Policy)>),
}

impl Deref for InForce<'_> {
    type Target = (Meter, Policy);

    #[inline]
    fn deref(&self) -> &(Meter, Policy) {
        match self {
            Self::First(first) => first,
            Self::Current(current) => current,
        }
    }
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
    pub(super) fn read(&self) -> InForce<'_> {
        if !self.changed.load(Ordering::Acquire) {
            return InForce::First(&self.first);
        }
        InForce::Current(self.current.read().unwrap_or_else(PoisonError::into_inner))
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
