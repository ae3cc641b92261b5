//! What the table is synchronised with: the standard library's primitives, and under the model
//! checker those whose schedules it explores.

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
