//! Atomics and locks of the table: the standard library's, and under the model checker those whose
//! schedules it explores.

#[cfg(not(all(test, check_model)))]
pub(super) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

#[cfg(all(test, check_model))]
pub(super) use {
    super::model::AtomicU64,
    loom::{
        sync::{Mutex, MutexGuard, atomic::Ordering},
        thread,
    },
};

/// Zeros in memory that is not touched before they are; `None` if there is no memory.
#[cfg(not(all(test, check_model)))]
pub(super) fn zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::allocation::try_zeroed_slice_box(count).ok()
}

/// Zeros of the model checker's type.
#[cfg(all(test, check_model))]
pub(super) fn zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..count).map(|_| AtomicU64::new(0)).collect())
}
