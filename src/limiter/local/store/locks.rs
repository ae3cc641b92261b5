//! Locks of several shards at once, taken in ascending order to avoid deadlocks.

#[cfg(all(test, check_model))]
mod model;

#[cfg(all(test, check_model))]
pub(super) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, check_model)))]
pub(super) use std::sync::{Mutex, MutexGuard};

use crate::lock::unpoisoned;

/// The shards of a call, locked until this is dropped.
pub(super) struct Locked<'a, T> {
    guards: Vec<(usize, MutexGuard<'a, T>)>,
}

impl<'a, T> Locked<'a, T> {
    /// Locks each of the shards at `places` once, in ascending order.
    pub(super) fn all(
        shards: &'a [Mutex<T>],
        places: &(impl ExactSizeIterator<Item = usize> + Clone),
    ) -> Self {
        let mut guards = Vec::with_capacity(places.len());
        let mut next = places.clone().min();
        while let Some(place) = next {
            guards.push((place, lock(&shards[place])));
            next = places.clone().filter(|other| *other > place).min();
        }
        Self { guards }
    }

    /// The shard with this index, which must be locked.
    pub(super) fn get(&mut self, place: usize) -> &mut T {
        let at = self.guards.iter().position(|(known, _)| *known == place);
        &mut self.guards[at.expect("it was locked")].1
    }
}

pub(super) fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(shard.lock())
}
