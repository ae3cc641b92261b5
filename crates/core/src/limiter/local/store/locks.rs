//! Locks of several shards at once, taken in ascending order to avoid deadlocks.

#[cfg(all(test, check_model))]
mod model;

#[cfg(all(test, check_model))]
pub(super) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, check_model)))]
pub(super) use std::sync::{Mutex, MutexGuard};

use crate::{lock::unpoisoned, small_list::SmallList};

/// The number of shards of most calls.
const FEW_SHARDS: usize = 4;

/// The index of a shard in its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShardIndex(pub(super) usize);

/// The shards of a call, locked until this is dropped.
pub(super) struct Locked<'a, T> {
    guards: SmallList<Option<(ShardIndex, MutexGuard<'a, T>)>, FEW_SHARDS>,
}

impl<'a, T> Locked<'a, T> {
    /// Locks each of the shards at `places`, which this sorts, once and in ascending order.
    #[inline]
    pub(super) fn all(shards: &'a [Mutex<T>], places: &mut [ShardIndex]) -> Self {
        places.sort_unstable();
        let mut guards = SmallList::with_room(places.len());
        let mut last = None;
        for place in places {
            if last != Some(*place) {
                guards.push(Some((*place, lock(&shards[place.0]))));
                last = Some(*place);
            }
        }
        Self { guards }
    }
}

/// The shards of a call, which are locked: several, or the only one.
pub(super) trait Shards<T> {
    /// The shard with this index, which must be locked.
    fn get(&mut self, place: ShardIndex) -> &mut T;
}

impl<T> Shards<T> for MutexGuard<'_, T> {
    #[inline(always)]
    fn get(&mut self, _: ShardIndex) -> &mut T {
        self
    }
}

impl<T> Shards<T> for Locked<'_, T> {
    #[inline(always)]
    fn get(&mut self, place: ShardIndex) -> &mut T {
        let mut guards = self.guards.as_mut_slice().iter_mut().flatten();
        let guard = guards.find(|(known, _)| *known == place);
        &mut guard.expect("it was locked").1
    }
}

pub(super) fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(shard.lock())
}
