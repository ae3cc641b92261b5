//! The scripts by themselves: many keys of one call are decided as in a call each, and the specialized scripts
//! decide as the general one does, to the byte.

mod many_keys;
pub(crate) mod script_write_recorder;
mod specialized;

use proptest::test_runner::{Config, TestRunner};
pub(crate) use tower_ratelimit_store::redis::script::GENERAL;
use tower_ratelimit_store::redis::script::{LONE_QUOTA, SEVERAL_QUOTAS};

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// The words of a text; `_` stands for an empty one.
fn words(text: &str) -> Vec<String> {
    text.split(' ').map(|word| word.replace('_', "")).collect()
}

/// A runner of `cases` times as many cases as `DIFFERENTIAL_OPERATIONS` thousands, or once as many.
fn runner(cases: u32) -> TestRunner {
    let wanted = std::env::var("DIFFERENTIAL_OPERATIONS").ok();
    let thousands = wanted.map_or(1, |n| n.parse::<u32>().expect("a number").div_ceil(1_000));
    TestRunner::new(Config {
        failure_persistence: None,
        cases: cases.saturating_mul(thousands),
        ..Config::default()
    })
}
