use std::{
    ops::Deref,
    sync::{
        PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::limiter::quotas::LoneBucket;

/// A quota that is read for every request and hardly ever changed: until it is, reading it takes
/// no lock.
#[derive(Debug)]
pub(super) struct LiveQuota {
    first: LoneBucket,
    changed: AtomicBool,
    current: RwLock<LoneBucket>,
}

/// What is in force.
pub(super) enum InForce<'a> {
    First(&'a LoneBucket),
    Current(RwLockReadGuard<'a, LoneBucket>),
}

impl Deref for InForce<'_> {
    type Target = LoneBucket;

    #[inline]
    fn deref(&self) -> &LoneBucket {
        match self {
            Self::First(first) => first,
            Self::Current(current) => current,
        }
    }
}

impl LiveQuota {
    pub(super) fn new(first: LoneBucket) -> Self {
        Self {
            current: RwLock::new(first.clone()),
            changed: AtomicBool::new(false),
            first,
        }
    }

    #[inline]
    pub(super) fn read(&self) -> InForce<'_> {
        if !self.changed.load(Ordering::Acquire) {
            return InForce::First(&self.first);
        }
        InForce::Current(self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn replace(&self, new: LoneBucket) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        self.changed.store(true, Ordering::Release);
    }
}
