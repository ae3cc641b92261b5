//! A limit that varies by the time of day is counted in one process.

use tower_ratelimit::{
    ConfigError, ConfigErrorKind, Quota,
    quota::TimeOfDay,
    shared::{MemoryStore, SharedLimiter},
};

const PLAIN: Quota = Quota::per_hour(9).fixed_window();
const HALVES: &[(TimeOfDay, u64)] = &[(TimeOfDay::MIDNIGHT, 3), (TimeOfDay::at(12, 0), 9)];

fn is_refused(error: &ConfigError) {
    assert_eq!(error.kind(), ConfigErrorKind::Varying);
    let text = error.to_string();
    assert!(text.contains("accepted are limits without times"), "{text}");
}

#[test]
fn a_store_refuses_a_limit_that_varies() {
    for quota in [PLAIN, PLAIN.sliding_window()] {
        let builder = SharedLimiter::builder(quota.varying(HALVES));
        is_refused(&builder.build_on(MemoryStore::new()).expect_err("it varies"));
        let builder = SharedLimiter::builder(PLAIN).tier("gold", quota.varying(HALVES));
        is_refused(&builder.build_on(MemoryStore::new()).expect_err("it varies"));
    }
}

#[test]
fn no_limit_in_a_store_becomes_one_that_varies() {
    let builder = SharedLimiter::builder(PLAIN.named("a"));
    let limiter = builder.build_on(MemoryStore::new()).expect("a good quota");
    is_refused(
        &limiter
            .set_quota("a", PLAIN.varying(HALVES))
            .expect_err("it varies"),
    );
}
