//! Runs of a test in all schedules.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Instant,
};

use loom::thread;

use super::{
    super::{CLAIMED, Ordering, Table, WAYS, unpack},
    NOW,
    sequential_table::{Call, Op, Spec},
};

impl Table {
    /// Makes the call, and returns the usage of the key before it.
    fn make(&self, call: Call) -> u64 {
        match call.op {
            Op::LimitAll(most) => {
                self.change_states(|state| state.min(NOW + most));
                return 0;
            }
            Op::Acquire(cost) => {
                let (state, moved) = self.advance(call.key, NOW, cost, call.limit);
                return state - NOW - if moved { cost } else { 0 };
            }
            _ => {}
        }
        self.update(call.key, NOW, |state| {
            let used = state.saturating_sub(NOW);
            (call.next(used).map(|next| NOW + next), used)
        })
    }

    /// The tag and usage of each entry that is not fresh.
    fn content(&self) -> Vec<(u64, u64)> {
        let mut tags = BTreeSet::new();
        let mut live = Vec::new();
        for entry in self.entries() {
            let tag = entry.tag.load(Ordering::Acquire);
            let state = entry.state.load(Ordering::Acquire);
            assert_ne!(state, CLAIMED, "a claim was not given back");
            assert!(tag == 0 || tags.insert(tag), "key {tag} has two entries");
            if unpack(state) > NOW {
                live.push((tag, unpack(state) - NOW));
            }
        }
        live.sort_unstable();
        live
    }
}

/// A test: the threads start when `before` has been done.
pub(super) struct Model {
    /// The near and the far ones.
    pub(super) buckets: [usize; 2],
    pub(super) before: Vec<Call>,
    pub(super) threads: Vec<Vec<Call>>,
    /// The most preemptions of a schedule, so that the test takes a few seconds.
    /// `LOOM_MAX_PREEMPTIONS` sets more.
    pub(super) preemptions: usize,
}

impl Model {
    /// Fails in the first schedule without an equal sequential order. `outcomes` different outcomes must
    /// occur: a search that misses them proves nothing.
    pub(super) fn check(self, outcomes: usize) {
        let started = Instant::now();
        let mut model = loom::model::Builder::new();
        model.max_branches = 10_000;
        model.preemption_bound.get_or_insert(self.preemptions);
        let bound = model.preemption_bound;

        let seen = Arc::new(Mutex::new((0_u64, BTreeSet::new())));
        let (this, outcomes_seen) = (Arc::new(self), Arc::clone(&seen));
        model.check(move || {
            let outcome = this.run();
            let mut seen = outcomes_seen.lock().expect("no panic so far");
            seen.0 += 1;
            seen.1.insert(outcome);
        });

        let (schedules, seen) = &*seen.lock().expect("no panic");
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        println!(
            "{test}: {schedules} schedules, {} outcomes, {bound:?} preemptions, {:.1?}",
            seen.len(),
            started.elapsed()
        );
        assert!(seen.len() >= outcomes, "only {seen:?}");
    }

    fn run(self: &Arc<Self>) -> Outcome {
        let [near, far] = self.buckets;
        let table = loom::sync::Arc::new(Table::with_buckets(near, far).expect("a little"));
        // Loom's atomics are made before the threads.
        let _has_far_part = table.far.made();
        let mut spec = Spec::new((near + far) * WAYS);
        for call in &self.before {
            assert_eq!(table.make(*call), spec.make(*call));
        }

        let run = |thread: usize| {
            let (model, table) = (Arc::clone(self), loom::sync::Arc::clone(&table));
            move || -> Vec<u64> {
                let calls = model.threads[thread].iter();
                calls.map(|call| table.make(*call)).collect()
            }
        };
        // The first thread's calls run here: loom's time grows with the number of threads.
        let others: Vec<_> = (1..self.threads.len())
            .map(|n| thread::spawn(run(n)))
            .collect();
        let mut results = vec![run(0)()];
        results.extend(
            others
                .into_iter()
                .map(|thread| thread.join().expect("no panic")),
        );

        let outcome = Outcome {
            results,
            content: table.content(),
            evictions: table.evictions(),
        };
        assert!(
            spec.explains(&self.threads, &outcome),
            "no order of the calls explains {outcome:?}"
        );
        outcome
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outcome {
    /// The results of each thread.
    pub(super) results: Vec<Vec<u64>>,
    pub(super) content: Vec<(u64, u64)>,
    pub(super) evictions: u64,
}
