#![no_main]

#[path = "../adapters/pacer_responses.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::client_responses::check(
    data,
    adapter::respond
));
