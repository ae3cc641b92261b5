#![no_main]

use testkit::fuzz::rules::check_path;
use tower_ratelimit::{
    Timestamp,
    rules::{Format, Rules},
};

fn matches(pattern: &str, path: &str) -> Option<bool> {
    let text = format!("[[rules]]\nname = \"a\"\nquota = \"1/s\"\nmatch.path = '{pattern}'\n");
    let rules = Rules::builder().parse(text, Format::Toml).ok()?;
    let (parts, ()) = http::Request::get(path).body(()).ok()?.into_parts();
    // A fragment is no part of what is sent.
    let whole = parts.uri.path() == path;
    let matched = rules
        .explain(&parts, Timestamp::from_secs(0))
        .applied()
        .count()
        == 1;
    whole.then_some(matched)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| check_path(data, matches));
