//! Random input of the property tests that stand in for the fuzz targets.

use proptest::{collection::vec, prelude::*, sample::select};

/// Half of it bytes, half of it what the syntax is made of, after as many bytes as the target's head has.
pub fn data(head: usize, fragments: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let pieces = vec(select(fragments), 0..24).prop_map(|pieces| pieces.concat().into_bytes());
    let mixed = (vec(any::<u8>(), head), pieces).prop_map(|(head, pieces)| [head, pieces].concat());
    prop_oneof![1 => vec(any::<u8>(), 0..200), 3 => mixed]
}

/// 4,000 cases, unless `PROPTEST_CASES` is set.
pub fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 4_000;
    }
    config
}
