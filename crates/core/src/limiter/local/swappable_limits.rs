//! Limits that may change while requests read them.

use std::{
    ops::Deref,
    sync::{
        RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::lock::unpoisoned;

/// Limits that every request reads and that rarely change. Until the first change, a read takes no
/// lock.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChangingLimits<T> {
    first: T,
    changed: AtomicBool,
    current: RwLock<T>,
}

/// The limits in force.
#[doc(hidden)]
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum InForce<'a, T> {
    First(&'a T),
    Current(RwLockReadGuard<'a, T>),
}

impl<T> Deref for InForce<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::First(first) => first,
            Self::Current(current) => current,
        }
    }
}

impl<T: Clone> ChangingLimits<T> {
    pub fn new(first: T) -> Self {
        Self {
            current: RwLock::new(first.clone()),
            changed: AtomicBool::new(false),
            first,
        }
    }

    /// The first limits, if they are in force.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        (!self.changed.load(Ordering::Acquire)).then_some(&self.first)
    }

    #[inline]
    pub fn read(&self) -> InForce<'_, T> {
        match self.first() {
            Some(first) => InForce::First(first),
            None => InForce::Current(unpoisoned(self.current.read())),
        }
    }

    /// Restores the first limits.
    pub(crate) fn return_to_first(&self) {
        self.changed.store(false, Ordering::Release);
    }

    pub fn replace(&self, new: T) {
        *unpoisoned(self.current.write()) = new;
        self.changed.store(true, Ordering::Release);
    }
}
