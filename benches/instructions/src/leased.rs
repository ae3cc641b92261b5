//! Decisions about one hot key: from a lease, and by a limiter in this process. The feature `leased` is
//! built apart, since it changes the optimizations of all others.

use std::{hint::black_box, time::Duration};

use tokio::runtime::Builder;
use tower_ratelimit::{
    Key, LocalLimiter, Quota,
    limiter::Pending,
    shared::{MemoryStore, Mode, SharedLimiter},
};

use crate::{COUNT, counted};

/// A unit a microsecond. A new bucket has the units of nearly 18 years.
const LASTING: Quota = Quota::per(1 << 49, Duration::from_micros(1 << 49));

/// The longest lease: valgrind is slow.
const LENGTH: Duration = Duration::from_secs(60);

pub(crate) fn local() {
    let limiter = LocalLimiter::new(LASTING);
    let key = Key::from("tenant");
    let decide = || {
        black_box(limiter.acquire(black_box(&key), 1).is_allowed());
    };
    decide();
    counted(|| (0..COUNT).for_each(|_| decide()));
}

pub(crate) fn leased() {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let builder = SharedLimiter::builder(LASTING).mode(Mode::leased().length(LENGTH));
    let limiter = builder.build_on(MemoryStore::new()).expect("a good quota");
    let key = Key::from("tenant");
    let _entered = runtime.enter();
    let acquire = |cost| match limiter.acquire(black_box(&key), cost) {
        Pending::Ready(answer) => answer,
        Pending::Later(answer) => runtime.block_on(answer),
    };
    // The demand of the first is known when the second leaves, which brings the lease.
    let most = u64::from(COUNT) * 16;
    for _ in 0..2 {
        assert!(acquire(most).is_ok_and(|decision| decision.is_allowed()));
    }
    let decide = || {
        let Pending::Ready(answer) = limiter.acquire(black_box(&key), 1) else {
            panic!("a decision that is not made from the lease");
        };
        black_box(answer.is_ok_and(|decision| decision.is_leased()));
    };
    decide();
    counted(|| (0..COUNT).for_each(|_| decide()));
}
