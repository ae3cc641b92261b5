#![no_main]

#[path = "../adapters/state_file_reader.rs"]
mod state_file_reader;

libfuzzer_sys::fuzz_target!(|data: &[u8]| state_file_reader::check(data));
