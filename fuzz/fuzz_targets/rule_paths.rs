#![no_main]

use testkit::fuzz::rules::check_path;
use tower_ratelimit::{
    Timestamp,
    rules::{Format, Rules},
};

fn fits(pattern: &str, path: &str, allow: bool) -> Option<bool> {
    let action = if allow {
        "action = 'allow'"
    } else {
        "quota = '1/s'"
    };
    let text = format!("[[rules]]\nname = 'a'\n{action}\nmatch.path = '{pattern}'\n");
    let rules = Rules::builder().parse(text, Format::Toml).ok()?;
    let (parts, ()) = http::Request::get(path).body(()).ok()?.into_parts();
    // A fragment is no part of what is sent.
    let whole = parts.uri.path() == path;
    let fits = rules
        .explain(&parts, Timestamp::from_secs(0))
        .applied()
        .count()
        == 1;
    whole.then_some(fits)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| check_path(data, fits));
