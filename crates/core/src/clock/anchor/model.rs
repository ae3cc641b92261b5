//! The anchor under loom, in all schedules. Run by `scripts/check-loom.sh`.

use loom::{sync::Arc, thread};
use std::sync::{Mutex, PoisonError};

use super::{Anchor, Clocks, LEAD, Ordering, SPAN};

/// Where the anchor is when the threads begin. They read around its end.
const START: u64 = 200_000;
const END: u64 = START + SPAN;

/// Clocks of one rate that stand still.
struct At(u64);

impl Clocks for At {
    fn ticks(&self) -> u64 {
        self.0 * 1_000
    }

    fn os(&self) -> u64 {
        self.0
    }

    fn wall(&self) -> u64 {
        self.0
    }
}

/// Two threads read at these times. What each gets is right by the anchor before or by the one after, and by no mixture; so it
/// never steps back. `outcomes` different results must occur.
fn check(threads: [&'static [u64]; 2], preemptions: usize, outcomes: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(preemptions);
    let seen = std::sync::Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let all_seen = std::sync::Arc::clone(&seen);
    model.check(move || {
        let anchor = Arc::new(Anchor::default());
        for time in [START - 2 * SPAN, START - SPAN, START] {
            anchor.time(&At(time));
        }
        let read = |times: &'static [u64]| {
            let anchor = Arc::clone(&anchor);
            move || -> Vec<u64> { times.iter().map(|&time| anchor.time(&At(time))).collect() }
        };
        let other = thread::spawn(read(threads[1]));
        // Where the other thread may have moved the anchor to, before a time that stands still is read.
        let most = threads.iter().copied().flatten().max().unwrap_or(&END) + LEAD;
        let told = [read(threads[0])(), other.join().expect("no panic")];
        for (times, told) in threads.iter().zip(&told) {
            assert!(told.is_sorted(), "{told:?}");
            for (time, told) in times.iter().zip(told) {
                assert!((*time..=most).contains(told), "{told} at {time}");
            }
        }
        assert_ne!(anchor.slope.load(Ordering::Relaxed), 0);
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(told);
    });
    let seen = all_seen.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{} outcomes: {seen:?}", seen.len());
    assert!(seen.len() >= outcomes);
}

#[test]
fn a_reader_gets_a_time_of_one_anchor() {
    check([&[END], &[END - 200, END + 90]], 2, 3);
}

#[test]
fn two_threads_move_the_anchor_once() {
    check([&[END], &[END + 1]], 2, 3);
}
