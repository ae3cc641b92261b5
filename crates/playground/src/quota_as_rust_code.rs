//! A quota as a line of Rust code.

use std::time::Duration;

use tower_ratelimit::{Quota, quota::Algorithm};

/// The layer of this quota, as in the README.
pub(crate) fn rust_line(quota: &Quota) -> String {
    format!("RateLimitLayer::new({}, PeerIp)", constructor(quota))
}

fn constructor(quota: &Quota) -> String {
    let (limit, period) = (quota.limit(), quota.period());
    let mut line = match period.as_millis() {
        1_000 => format!("Quota::per_second({limit})"),
        60_000 => format!("Quota::per_minute({limit})"),
        3_600_000 => format!("Quota::per_hour({limit})"),
        86_400_000 => format!("Quota::per_day({limit})"),
        _ => format!("Quota::per({limit}, {})", duration(period)),
    };
    match quota.algorithm() {
        Algorithm::LeakyBucket { queue } => line += &format!(".leaky_bucket({queue})"),
        Algorithm::FixedWindow => line += ".fixed_window()",
        Algorithm::SlidingWindow => line += ".sliding_window()",
        Algorithm::SlidingLog => line += ".sliding_log()",
        _ => {}
    }
    for word in ["burst", "slices", "soft", "debt"] {
        if let Some(value) = number_after(quota, word) {
            line += &format!(".{word}({value})");
        }
    }
    if let Some(step) = step(quota) {
        line += &format!(".refill_every({})", duration(step));
    }
    line
}

/// The number after a word of the quota's text.
pub(crate) fn number_after(quota: &Quota, word: &str) -> Option<u64> {
    value_after(quota, word)?.trim_end_matches('%').parse().ok()
}

/// The time from one refill to the next. Its text reads like a period.
pub(crate) fn step(quota: &Quota) -> Option<Duration> {
    let step = value_after(quota, "refill_every")?;
    let step: Quota = format!("1/{step}").parse().ok()?;
    Some(step.period())
}

fn value_after(quota: &Quota, word: &str) -> Option<String> {
    let text = quota.to_string();
    let mut words = text.split(' ');
    words.find(|known| *known == word)?;
    words.next().map(str::to_owned)
}

fn duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [
        (1_000_000_000, "secs"),
        (1_000_000, "millis"),
        (1_000, "micros"),
    ];
    let whole = units.iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or(&(1, "nanos"));
    format!("Duration::from_{name}({})", nanos / unit)
}
