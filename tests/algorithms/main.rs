//! What the algorithms promise: their definitions as an oracle, their bounds, and what blocks,
//! soft limits, tiers and changes of quota do to them.

mod agreement;
mod oracle;
mod quotas;
mod refunds;
mod stack;

use std::env;

use proptest::prelude::ProptestConfig;
use tower_ratelimit::Key;

/// So many cases, unless `PROPTEST_CASES` says otherwise.
fn cases(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = None;
    config
}

fn alice() -> Key {
    Key::from("alice")
}
