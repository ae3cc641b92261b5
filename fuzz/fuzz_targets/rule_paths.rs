#![no_main]

#[path = "../adapters/rule_path_matcher.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::rules::check_path(data, adapter::fits));
