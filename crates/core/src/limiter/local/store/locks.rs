//! Locks of several shards at once, taken in ascending order to avoid deadlocks.

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

/// The order of locks under loom, in all schedules. Run by `scripts/check-model.sh`.
#[cfg(all(test, check_model))]
mod model {
    use loom::{sync::Arc, thread};

    use super::{Locked, Mutex, ShardIndex, Shards, lock};

    /// Charges one unit to each of two counters that hold one, both or none.
    fn charge_both(counters: &[Mutex<u32>], places: [usize; 2]) -> bool {
        let places = places.map(ShardIndex);
        let mut locked = Locked::all(counters, &mut places.clone());
        let fit = places.iter().all(|place| *locked.get(*place) < 1);
        if fit {
            for place in places {
                *locked.get(place) += 1;
            }
        }
        fit
    }

    fn model(calls: [[usize; 2]; 2], admitted: impl Fn([bool; 2]) -> bool + Send + Sync + 'static) {
        loom::model(move || {
            let counters: Arc<[Mutex<u32>; 3]> = Arc::new([0, 0, 0].map(Mutex::new));
            let other = {
                let counters = Arc::clone(&counters);
                thread::spawn(move || charge_both(&*counters, calls[0]))
            };
            let own = charge_both(&*counters, calls[1]);
            let outcome = [other.join().unwrap(), own];
            assert!(admitted(outcome), "{outcome:?}");
            let counted: u32 = counters.iter().map(|counter| *lock(counter)).sum();
            let passed = outcome.iter().filter(|passed| **passed).count();
            assert_eq!(counted as usize, 2 * passed);
        });
    }

    /// Locks taken in the order of the keys could deadlock.
    #[test]
    fn two_calls_want_the_same_two_shards_in_opposite_orders() {
        model([[0, 1], [1, 0]], |[one, two]| one != two);
    }

    #[test]
    fn two_calls_share_one_of_their_shards() {
        model([[0, 2], [2, 1]], |[one, two]| one != two);
    }

    #[test]
    fn calls_about_other_shards_do_not_wait_for_each_other() {
        model([[0, 0], [2, 2]], |passed| passed == [true, true]);
    }
}
