//! The protocol of the table under loom, in all schedules. Run by `scripts/check-loom.sh`.
//!
//! In each test a few threads make a few calls. Then there must be a sequential order of these calls
//! in which a plain map returns equal results to every caller, evicts as many keys and ends with equal
//! content. So no result may be lost, counted twice or belong to another key.

mod all_schedules;
mod atomic;
mod sequential_table;

pub(super) use self::atomic::AtomicU64;
use self::{
    all_schedules::Model,
    sequential_table::{Call, Op},
};
use super::{KeyHash, WAYS};

const NOW: u64 = 1_000;

/// A key with the first and the last bucket.
const A: KeyHash = in_buckets(1, [0, u32::MAX]);
const B: KeyHash = in_buckets(2, [0, u32::MAX]);
/// A key with the first bucket only.
const C: KeyHash = in_buckets(3, [0, 0]);

const fn in_buckets(tag: u64, [first, second]: [u32; 2]) -> KeyHash {
    let bucket_bits = (second as u64) << 32 | first as u64;
    KeyHash { tag, bucket_bits }
}

/// The calls of a test. Costs are different powers of two where possible, so that a state shows the
/// calls that made it.
const fn acquire(key: KeyHash, cost: u64) -> Call {
    acquire_of(key, cost, 1 << 20)
}

const fn acquire_of(key: KeyHash, cost: u64, limit: u64) -> Call {
    Call {
        key,
        op: Op::Acquire(cost),
        limit,
    }
}

const fn call(key: KeyHash, op: Op) -> Call {
    Call {
        key,
        op,
        limit: 1 << 20,
    }
}

/// Keys that fill the first bucket up to `free` entries and have the most usage.
fn walls(free: u64) -> Vec<Call> {
    let wall = |n| acquire(in_buckets(100 + n, [0, 0]), 1 << 16);
    (0..WAYS as u64 - free).map(wall).collect()
}

fn with(mut calls: Vec<Call>, more: &[Call]) -> Vec<Call> {
    calls.extend(more);
    calls
}

#[test]
fn unknown_key_is_inserted_once() {
    let model = Model {
        buckets: [2, 0],
        before: vec![],
        threads: vec![
            vec![acquire(A, 1), acquire(A, 2)],
            vec![acquire(A, 4), acquire(A, 8)],
        ],
        preemptions: 3,
    };
    model.check(6);
}

#[test]
fn unknown_key_of_three_threads_is_inserted_once() {
    let model = Model {
        buckets: [1, 0],
        before: vec![],
        threads: vec![
            vec![acquire(A, 1)],
            vec![acquire(A, 2)],
            vec![acquire(A, 4)],
        ],
        preemptions: 2,
    };
    model.check(6);
}

/// The entry where the one thread wants to insert A is taken by C, and then the other thread finds
/// A's other bucket emptier.
#[test]
fn key_is_inserted_once_while_its_bucket_fills() {
    let model = Model {
        buckets: [2, 0],
        before: vec![],
        threads: vec![vec![acquire(A, 1)], vec![acquire(C, 2), acquire(A, 4)]],
        preemptions: 3,
    };
    model.check(2);
}

#[test]
fn limit_of_an_unknown_key_is_exact() {
    let model = Model {
        buckets: [1, 0],
        before: vec![],
        threads: vec![
            vec![acquire_of(A, 1, 3), acquire_of(A, 1, 3)],
            vec![acquire_of(A, 1, 3), acquire_of(A, 1, 3)],
        ],
        preemptions: 3,
    };
    model.check(6);
}

#[test]
fn known_key_counts_every_charge() {
    let model = Model {
        buckets: [1, 0],
        before: vec![acquire(A, 1)],
        threads: vec![
            vec![acquire(A, 2), acquire(A, 4), acquire(A, 8)],
            vec![acquire(A, 16), acquire(A, 32), acquire(A, 64)],
        ],
        preemptions: 3,
    };
    model.check(16);
}

#[test]
fn known_key_of_three_threads_counts_every_charge() {
    let model = Model {
        buckets: [1, 0],
        before: vec![acquire(A, 1)],
        threads: vec![
            vec![acquire(A, 2)],
            vec![acquire(A, 4)],
            vec![acquire(A, 8), acquire(A, 16)],
        ],
        preemptions: 2,
    };
    model.check(10);
}

#[test]
fn key_is_evicted_while_it_is_charged() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(A, 8)]),
        threads: vec![
            vec![acquire(A, 16), acquire(A, 32)],
            vec![acquire(B, 1), acquire(B, 2)],
        ],
        preemptions: 2,
    };
    model.check(5);
}

#[test]
fn key_is_evicted_while_two_threads_charge_it() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(A, 8)]),
        threads: vec![
            vec![acquire(A, 16)],
            vec![acquire(A, 32)],
            vec![acquire(B, 1)],
        ],
        preemptions: 2,
    };
    model.check(6);
}

/// The state that the first thread read returns, for key B.
#[test]
fn key_is_evicted_for_one_in_the_same_state() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(A, 8)]),
        threads: vec![vec![acquire(A, 16)], vec![acquire(B, 8), call(B, Op::Peek)]],
        preemptions: 3,
    };
    model.check(3);
}

#[test]
fn key_comes_back_in_the_state_it_had() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(A, 8)]),
        threads: vec![vec![acquire(A, 16)], vec![acquire(B, 8), acquire(A, 8)]],
        preemptions: 2,
    };
    model.check(3);
}

/// A sleeping reader of B can find B's tag, the state of A and B's tag again.
#[test]
fn reader_sees_no_other_key() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(B, 1)]),
        threads: vec![
            vec![call(B, Op::Peek), call(B, Op::Peek)],
            vec![acquire(A, 2), acquire(B, 4)],
        ],
        preemptions: 2,
    };
    model.check(6);
}

#[test]
fn denial_is_never_for_what_another_key_used() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(B, 1)]),
        threads: vec![
            vec![acquire_of(B, 8, 15)],
            vec![acquire(A, 64), acquire(B, 4)],
        ],
        preemptions: 3,
    };
    model.check(3);
}

#[test]
fn refund_and_reset_are_counted_once() {
    let model = Model {
        buckets: [1, 0],
        before: vec![acquire(A, 1)],
        threads: vec![
            vec![acquire(A, 4), call(A, Op::Refund(4)), acquire(A, 8)],
            vec![acquire(A, 16), call(A, Op::Reset)],
        ],
        preemptions: 3,
    };
    model.check(10);
}

#[test]
fn limit_of_all_states_loses_no_charge() {
    let model = Model {
        buckets: [1, 0],
        before: vec![acquire(A, 8)],
        threads: vec![
            vec![acquire(A, 1), acquire(A, 16)],
            vec![call(A, Op::LimitAll(4)), acquire(A, 2)],
        ],
        preemptions: 3,
    };
    model.check(6);
}

/// B claims the entry that A leaves while A, which has more than is allowed, is limited there.
#[test]
fn entry_changes_hands_while_it_is_limited() {
    let model = Model {
        buckets: [1, 0],
        before: with(vec![acquire(A, 6)], &walls(1)),
        threads: vec![
            vec![call(A, Op::Reset), acquire(B, 2)],
            vec![call(A, Op::LimitAll(4))],
        ],
        preemptions: 3,
    };
    model.check(2);
}

/// A's entry is free between the first thread's calls, and B wants it.
#[test]
fn entry_freed_by_a_reset_is_claimed() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(A, 1)]),
        threads: vec![
            vec![call(A, Op::Reset), acquire(A, 2)],
            vec![acquire(B, 4), call(B, Op::Peek)],
        ],
        preemptions: 2,
    };
    model.check(5);
}

#[test]
fn entry_freed_by_a_refund_is_claimed() {
    let model = Model {
        buckets: [1, 0],
        before: with(walls(1), &[acquire(A, 1)]),
        threads: vec![
            vec![call(A, Op::Refund(1)), acquire(A, 2)],
            vec![acquire(B, 4)],
            vec![call(A, Op::Peek)],
        ],
        preemptions: 1,
    };
    model.check(9);
}

#[test]
fn two_keys_want_the_same_free_entry_and_find_one_each() {
    let model = Model {
        buckets: [1, 0],
        before: walls(2),
        threads: vec![
            vec![acquire(A, 1), acquire(A, 2)],
            vec![acquire(B, 4), acquire(B, 8)],
        ],
        preemptions: 2,
    };
    // Neither sees the other; nothing may be evicted.
    model.check(1);
}

/// The last free entry: the second thread takes it from the first, never from the walls, even
/// though it is hidden while it is claimed.
#[test]
fn exhausted_key_outlives_two_that_want_the_last_entry() {
    let model = Model {
        buckets: [1, 0],
        before: walls(1),
        threads: vec![vec![acquire(A, 1)], vec![acquire(B, 2)]],
        preemptions: 3,
    };
    model.check(2);
}

/// A state above the smaller limit is clamped by the thread that has that limit.
#[test]
fn callers_with_different_limits_share_one_state() {
    let model = Model {
        buckets: [1, 0],
        before: vec![acquire(A, 1)],
        threads: vec![
            vec![acquire_of(A, 1, 3), acquire_of(A, 1, 3)],
            vec![acquire_of(A, 4, 16), acquire_of(A, 4, 16)],
        ],
        preemptions: 3,
    };
    model.check(6);
}

/// Keys that fill the near bucket. All keys have the same buckets in a table of one near and one far one.
fn near_walls() -> Vec<Call> {
    walls(0)
}

/// The key of the first of the walls.
const WALL: KeyHash = in_buckets(100, [0, 0]);

#[test]
fn unknown_key_is_inserted_once_into_the_far_part() {
    let model = Model {
        buckets: [1, 1],
        before: near_walls(),
        threads: vec![
            vec![acquire(A, 1), acquire(A, 2)],
            vec![acquire(A, 4), acquire(A, 8)],
        ],
        preemptions: 3,
    };
    model.check(6);
}

/// A near entry is free, and another key wants it, while A is charged in the far part.
#[test]
fn far_key_stays_one_while_a_near_entry_changes_hands() {
    let model = Model {
        buckets: [1, 1],
        before: with(near_walls(), &[acquire(A, 1)]),
        threads: vec![
            vec![acquire(A, 2), acquire(A, 4)],
            vec![call(WALL, Op::Reset), acquire(B, 8)],
        ],
        preemptions: 3,
    };
    // No call sees another key.
    model.check(1);
}

/// The near entry becomes free between the search and the insertion of A.
#[test]
fn unknown_key_is_inserted_once_while_a_near_entry_becomes_free() {
    let model = Model {
        buckets: [1, 1],
        before: near_walls(),
        threads: vec![
            vec![acquire(A, 1)],
            vec![call(WALL, Op::Reset), acquire(A, 2), acquire(A, 4)],
        ],
        preemptions: 3,
    };
    model.check(3);
}

/// A is evicted from the far part, and B from where A was.
#[test]
fn far_key_is_evicted_while_it_is_charged() {
    let model = Model {
        buckets: [1, 1],
        before: with(
            near_walls(),
            &[acquire(in_buckets(200, [0, 0]), 1 << 16), acquire(A, 8)],
        ),
        threads: vec![
            vec![acquire(A, 16), acquire(A, 32)],
            vec![acquire(B, 1), acquire(B, 2)],
        ],
        preemptions: 2,
    };
    model.check(5);
}

/// The key with the least usage is near, and comes back there.
#[test]
fn near_key_is_evicted_for_one_that_found_the_far_part_full() {
    let far = (0..WAYS as u64).map(|n| acquire(in_buckets(200 + n, [0, 0]), 1 << 16));
    let model = Model {
        buckets: [1, 1],
        before: [acquire(A, 8)]
            .into_iter()
            .chain(walls(1))
            .chain(far)
            .collect(),
        threads: vec![vec![acquire(A, 16)], vec![acquire(B, 8), acquire(A, 8)]],
        preemptions: 2,
    };
    model.check(3);
}

/// The last free entry is in the near part, and hidden while it is claimed.
#[test]
fn exhausted_far_key_outlives_two_that_want_the_last_near_entry() {
    let far = (0..WAYS as u64).map(|n| acquire(in_buckets(200 + n, [0, 0]), 1 << 16));
    let model = Model {
        buckets: [1, 1],
        before: with(
            near_walls().into_iter().chain(far).collect(),
            &[call(WALL, Op::Reset)],
        ),
        threads: vec![vec![acquire(A, 1)], vec![acquire(B, 2)]],
        preemptions: 3,
    };
    model.check(2);
}

/// The last free entry is in the far part.
#[test]
fn exhausted_near_key_outlives_two_that_want_the_last_far_entry() {
    let model = Model {
        buckets: [1, 1],
        before: with(near_walls(), &[acquire(in_buckets(200, [0, 0]), 1 << 16)]),
        threads: vec![vec![acquire(A, 1)], vec![acquire(B, 2)]],
        preemptions: 3,
    };
    model.check(2);
}
