#![no_main]

#[path = "../adapters/rule_file_parser.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::rules::check_file(data, adapter::read));
