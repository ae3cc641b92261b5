#![no_main]

#[path = "../adapters/host_parser.rs"]
mod adapter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::hosts::check(data, adapter::parse));
