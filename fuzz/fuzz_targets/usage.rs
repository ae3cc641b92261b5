#![no_main]

#[path = "../adapters/usage_reader.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::usage::check(data, adapter::read));
