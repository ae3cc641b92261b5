#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::single_ip_headers::check(data));
