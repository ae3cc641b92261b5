//! The order of locks under loom, in all schedules. Run by `scripts/check-model.sh`.

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
