//! Locks that go on after a panic: nothing that they guard is left half changed.

use std::sync::LockResult;

/// The guard of a lock, whether or not a thread panicked while it held the lock before.
#[inline]
pub(crate) fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(|poisoned| poisoned.into_inner())
}
