//! Constants of values in the scripts: made from those in Rust, and compared.

use super::{
    LONGEST_LEASE, MOST_LEASED_SLOTS, MOST_ROWS,
    subject_value::{LONGEST_KEPT_BLOCK, MOST_RESERVED, ROW},
};

/// The file for the general script.
fn constants() -> String {
    let lease = LONGEST_LEASE.as_micros();
    let (block_u, block_n) = (LONGEST_KEPT_BLOCK / 1_000, LONGEST_KEPT_BLOCK % 1_000);
    format!(
        "\
-- Constants of values, made from those in Rust: the test of `crates/shared/src/wire/constants.rs` compares this file.
local ROW, MOST_ROWS, MOST_SLOTS, LONGEST_LEASE = {ROW}, {MOST_ROWS}, {MOST_LEASED_SLOTS}, {lease}
local MOST_RESERVED, LONGEST_BLOCK_U, LONGEST_BLOCK_N = {MOST_RESERVED}, {block_u}, {block_n}
"
    )
}

#[test]
fn the_scripts_have_the_constants_of_the_code() {
    let committed = include_str!("../../../store/src/redis/script/constants.lua");
    assert_eq!(committed, constants(), "write the right side to the file");
    let longest_block = (LONGEST_KEPT_BLOCK / 1_000).to_string();
    for specialized in [
        include_str!("../../../store/src/redis/script/lone_quota.lua"),
        include_str!("../../../store/src/redis/script/several_quotas.lua"),
    ] {
        assert!(specialized.contains(&longest_block), "{specialized}");
    }
}
