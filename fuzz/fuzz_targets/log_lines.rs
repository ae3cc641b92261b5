#![no_main]

#[path = "../adapters/log_line_parser.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::log_lines::check(data, adapter::read));
