-- Constants of values, made from those in Rust: the test of `crates/shared/src/wire/constants.rs` compares this file.
local ROW, MOST_ROWS, MOST_SLOTS, LONGEST_LEASE = 28, 1024, 8, 60000000
local MOST_RESERVED, LONGEST_BLOCK_U, LONGEST_BLOCK_N = 1125899906842624, 576460752303423, 488
