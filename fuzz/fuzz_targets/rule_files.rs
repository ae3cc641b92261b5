#![no_main]

#[path = "../adapters/rule_files.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::rules::check_file(data, adapter::read));
