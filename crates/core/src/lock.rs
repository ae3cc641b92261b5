//! Locks without poisoning: a panic leaves no value that they guard half changed.

use std::sync::LockResult;

/// The guard of a lock, whether or not a thread panicked while it held the lock before.
pub fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(|poisoned| poisoned.into_inner())
}
