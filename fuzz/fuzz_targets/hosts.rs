#![no_main]

use tower_ratelimit_rulefile::pattern::Host;

fn parse(text: &[u8]) -> Option<String> {
    Some(match Host::parse(text)? {
        Host::Name(name) => name.to_ascii_lowercase(),
        Host::Ipv6(address) => format!("[{address}]"),
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::fuzz::hosts::check(data, parse));
