//! `explain`: what a quota allows, in words and numbers.

use std::{fmt::Write, time::Duration};

use http::HeaderMap;
use tower_ratelimit::{
    Headers, Key, LocalLimiter, Quota,
    clock::ManualClock,
    quota::{Algorithm, TimeOfDay},
    rules::{Format, Rules},
};

/// The explanation of a quota.
///
/// # Errors
///
/// The fault of the quota.
pub(crate) fn explain(text: &str) -> Result<String, String> {
    let quota: Quota = text.parse().map_err(|error| format!("{error}"))?;
    let mut report = format!("{quota}\n\n");
    let _ = writeln!(report, "{}\n", words(&quota));
    report += "At most, in any stretch of time\n";
    for (stretch, most) in bounds(&quota) {
        let _ = writeln!(report, "  {:12} {most}", duration(stretch));
    }
    let _ = writeln!(report, "\nMemory      {}", memory(&quota));
    report += "\nFields of the first response\n";
    for (name, value) in &first_response(&quota)? {
        let _ = writeln!(report, "  {name}: {}", value.to_str().unwrap_or_default());
    }
    let _ = writeln!(report, "\nRust        {}", rust(&quota));
    let _ = writeln!(report, "YAML        {}", yaml(&quota));
    Ok(report)
}

fn words(quota: &Quota) -> String {
    let (limit, period) = (quota.limit(), duration(quota.period()));
    let each = duration(quota.period() / u32::try_from(limit).unwrap_or(u32::MAX).max(1));
    let all = quota.capacity();
    match quota.algorithm() {
        Algorithm::TokenBucket => format!(
            "A token bucket: after a pause {all} at once, then {limit} per {period}, one every {each}."
        ),
        Algorithm::LeakyBucket { queue } => format!(
            "A queue: one every {each}; up to {queue} wait for their turn, the others are denied."
        ),
        Algorithm::FixedWindow if calendar_unit(quota).is_some() => calendar_words(quota),
        _ if quota.varying_limits().is_some() => varying_words(quota),
        Algorithm::FixedWindow => format!(
            "A fixed window: {limit} from one multiple of {period} since 1970 (UTC) to the next; up to \
             twice that across the edge of two."
        ),
        Algorithm::SlidingWindow => format!(
            "A sliding window: close to {limit} in any {period} as long as requests come evenly, twice \
             that at worst."
        ),
        _ => format!("A log of times: never more than {limit} in any {period}."),
    }
}

/// The unit of a quota that follows the calendar: its text has a word for it.
fn calendar_unit(quota: &Quota) -> Option<&'static str> {
    let text = quota.to_string();
    let period = text.split(' ').next()?.split('/').nth(1)?;
    let mut units = ["day", "week", "month", "year"].into_iter();
    units.find(|unit| *unit == period)
}

fn calendar_words(quota: &Quota) -> String {
    let unit = calendar_unit(quota).unwrap_or_default();
    let begin = match (unit, word_of(quota, "starting_on")) {
        ("day", _) => "the start of the day".to_owned(),
        ("week", _) => "Monday".to_owned(),
        ("year", _) => "1 January".to_owned(),
        (_, day) => format!("day {}", day.unwrap_or_else(|| "1".to_owned())),
    };
    let zone = word_of(quota, "in").unwrap_or_else(|| "UTC".to_owned());
    format!(
        "A fixed window: {} from {begin} of each {unit} in {zone}; up to twice that across the edge of two.",
        quota.limit()
    )
}

/// The days of the shortest and of the longest window, if the quota follows the calendar.
fn calendar_days(quota: &Quota) -> Option<(u64, u64)> {
    calendar_unit(quota).map(|unit| match unit {
        "day" => (1, 1),
        "week" => (7, 7),
        "month" => (28, 31),
        _ => (365, 366),
    })
}

/// The limits of a day, and how one follows another.
fn varying_words(quota: &Quota) -> String {
    let limits = quota.varying_limits().unwrap_or_default().iter();
    let limits: Vec<_> = limits
        .map(|(time, limit)| format!("{limit} from {time} on"))
        .collect();
    let period = duration(quota.period());
    let limits = limits.join(", ");
    let zone = word_of(quota, "in").unwrap_or_else(|| "UTC".to_owned());
    match quota.algorithm() {
        Algorithm::SlidingWindow => format!(
            "A sliding window of {period} whose limit varies by the time of day ({zone}): {limits}; across a \
             change it moves from one to the other within {period}."
        ),
        _ => format!(
            "A fixed window of {period} whose limit varies by the time of day ({zone}): {limits}; a window has \
             the one with which it begins."
        ),
    }
}

/// The length of the shortest window.
fn shortest_window(quota: &Quota) -> Duration {
    calendar_days(quota).map_or(quota.period(), |(days, _)| {
        // Clocks are set forward by an hour.
        Duration::from_secs(days * 86_400 - 3_600)
    })
}

/// The most units that can pass in typical stretches of time, soft share included.
fn bounds(quota: &Quota) -> Vec<(Duration, u128)> {
    let days = calendar_days(quota).map(|(_, days)| Duration::from_secs(days * 86_400));
    let period = days.unwrap_or(quota.period());
    let mut stretches = vec![Duration::from_secs(1), period, 2 * period];
    stretches.extend([60, 3_600, 86_400].map(Duration::from_secs));
    stretches.retain(|stretch| *stretch >= Duration::from_secs(1) || *stretch == period);
    stretches.sort_unstable();
    stretches.dedup();
    stretches
        .into_iter()
        .map(|stretch| (stretch, most_in(quota, stretch)))
        .collect()
}

fn most_in(quota: &Quota, stretch: Duration) -> u128 {
    let (stretch, period) = (stretch.as_nanos(), quota.period().as_nanos());
    let interval = (period / u128::from(quota.limit())).max(1);
    let soft = word_of(quota, "soft").and_then(|soft| soft.trim_end_matches('%').parse().ok());
    let soft: u128 = soft.unwrap_or(0);
    let with_soft = |units: u128| units + units * soft / 100;
    let capacity = with_soft(quota.capacity().into());
    // A stretch includes one of its ends only.
    let evenly = stretch.div_ceil(interval);
    // The number of windows that it can touch.
    let windows = stretch.div_ceil(shortest_window(quota).as_nanos()) + 1;
    let step = quota.refill_step().map(|step| step.as_nanos());
    match (quota.algorithm(), step) {
        (Algorithm::TokenBucket, None) => capacity + stretch / interval,
        (Algorithm::TokenBucket, Some(step)) => capacity + stretch.div_ceil(step) * step / interval,
        (Algorithm::LeakyBucket { .. }, _) => evenly,
        (Algorithm::FixedWindow | Algorithm::SlidingWindow, _) => capacity * windows,
        _ => capacity * stretch.div_ceil(period),
    }
}

/// The value after a word of the quota's text.
fn word_of(quota: &Quota, word: &str) -> Option<String> {
    let text = quota.to_string();
    let mut words = text.split(' ');
    words.find(|known| *known == word)?;
    words.next().map(str::to_owned)
}

fn memory(quota: &Quota) -> String {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => "30 bytes a key".to_owned(),
        Algorithm::FixedWindow => "75 bytes a key".to_owned(),
        Algorithm::SlidingWindow => {
            let slices = word_of(quota, "slices").and_then(|slices| slices.parse().ok());
            format!(
                "75 bytes a key, and {} while it is in use",
                40 + 8 * slices.unwrap_or(1_u64)
            )
        }
        _ => format!(
            "75 bytes a key, and up to {} for one that uses up its limit",
            quota.limit().saturating_mul(32)
        ),
    }
}

fn first_response(quota: &Quota) -> Result<HeaderMap, String> {
    let limiter = LocalLimiter::builder(*quota)
        .clock(ManualClock::new())
        .max_keys(1)
        .build()
        .map_err(|error| error.to_string())?;
    let decision = limiter.acquire(&Key::global(), 1);
    let mut headers = HeaderMap::new();
    Headers::new().apply(&decision, &mut headers);
    Ok(headers)
}

fn rust(quota: &Quota) -> String {
    let (limit, period) = (quota.limit(), quota.period());
    let seconds = Some(period.as_secs()).filter(|_| period.subsec_nanos() == 0);
    let unit = calendar_unit(quota).or(match seconds {
        Some(1) => Some("second"),
        Some(60) => Some("minute"),
        Some(3_600) => Some("hour"),
        Some(86_400) => Some("day"),
        _ => None,
    });
    let mut line = match unit {
        Some(unit) => format!("Quota::per_{unit}({limit})"),
        None => format!("Quota::per({limit}, {})", rust_duration(period)),
    };
    match quota.algorithm() {
        Algorithm::LeakyBucket { queue } => line += &format!(".leaky_bucket({queue})"),
        Algorithm::FixedWindow if calendar_unit(quota).is_none() => line += ".fixed_window()",
        Algorithm::SlidingWindow => line += ".sliding_window()",
        Algorithm::SlidingLog => line += ".sliding_log()",
        _ => {}
    }
    for word in ["burst", "slices", "soft", "starting_on"] {
        if let Some(value) = word_of(quota, word) {
            line += &format!(".{word}({})", value.trim_end_matches('%'));
        }
    }
    line += &rust_limits(quota);
    if let Some(zone) = word_of(quota, "in") {
        line += &format!(".in_zone({zone:?})");
    }
    if let Some(step) = quota.refill_step() {
        line += &format!(".refill_every({})", rust_duration(step));
    }
    line
}

/// The limits of a day, which a line outside of a constant needs in a block of one.
fn rust_limits(quota: &Quota) -> String {
    let entry = |(at, limit): &(TimeOfDay, u64)| format!("({}, {limit})", rust_time(*at));
    let entries = |limits: &[_]| limits.iter().map(entry).collect::<Vec<_>>().join(", ");
    let limits = quota.varying_limits().map(entries);
    limits.map_or_else(String::new, |limits| {
        format!(".varying(const {{ &[{limits}] }})")
    })
}

fn rust_time(time: TimeOfDay) -> String {
    let seconds = time.seconds().unwrap_or(0);
    let [hour, minute, second] = [seconds / 3_600, seconds / 60 % 60, seconds % 60];
    let at = format!("TimeOfDay::at({hour}, {minute})");
    match second {
        0 => at,
        _ => format!("{at}.with_second({second})"),
    }
}

fn rust_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        return format!("Duration::from_secs({})", duration.as_secs());
    }
    format!("Duration::from_nanos({})", duration.as_nanos())
}

/// A rule with the quota; parsed, to be sure that it is valid.
fn yaml(quota: &Quota) -> String {
    let line = format!("quota: {quota}");
    let rule = format!("rules: [{{name: example, {line}}}]");
    debug_assert!(Rules::builder().parse(rule, Format::Yaml).is_ok());
    line
}

/// `60s`, `1.5s`, `10ms`; minutes, hours and days if they are whole.
fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let whole = duration.subsec_nanos() == 0 && seconds > 0;
    for (unit, name) in [(86_400, "day"), (3_600, "hour"), (60, "minute")] {
        if whole && seconds.is_multiple_of(unit) {
            return match seconds / unit {
                1 => format!("1 {name}"),
                many => format!("{many} {name}s"),
            };
        }
    }
    format!("{duration:?}")
}

#[cfg(test)]
mod tests {
    use tower_ratelimit::clock::Timestamp;

    use super::*;

    #[test]
    fn stretches_of_a_calendar_quota_are_days_and_touch_the_shortest_windows() {
        let month: Quota = "10/month in Europe/Berlin".parse().expect("a quota");
        let bounds = bounds(&month);
        let texts = bounds
            .iter()
            .map(|(stretch, most)| format!("{} {most}", duration(*stretch)));
        // 31 days touch January, February and March, and 62 days April, too.
        let expected = [
            "1s 20",
            "1 minute 20",
            "1 hour 20",
            "1 day 20",
            "31 days 30",
            "62 days 40",
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }

    /// A client that takes all units it can get, a hundred times a second, stays within the
    /// explained bounds.
    #[test]
    fn no_greedy_client_exceeds_the_explanation() {
        for text in [
            "7/s burst 11",
            "7/s burst 11 soft 50%",
            "10/s refill_every 500ms",
            "6/2s fixed_window",
            "6/2s sliding_window",
            "6/2s sliding_window slices 4",
            "5/2s sliding_log",
            "5/2s sliding_log soft 20%",
        ] {
            let quota: Quota = text.parse().expect("a quota");
            let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_990_000));
            let limiter = LocalLimiter::builder(quota)
                .clock(clock.clone())
                .build()
                .expect("a limiter");
            // Some pause first, so that they meet the edges of windows.
            let passed: Vec<u64> = (0..1_500)
                .map(|step| {
                    clock.advance(Duration::from_millis(10));
                    let is_requesting = (step / 97) % 3 != 1;
                    if is_requesting {
                        limiter.acquire_up_to(&Key::global(), 1_000).charged()
                    } else {
                        0
                    }
                })
                .collect();
            for (stretch, most) in bounds(&quota) {
                let steps = (stretch.as_millis() / 10) as usize;
                let windows = passed.windows(steps.min(passed.len()));
                let found = windows.map(|window| window.iter().sum::<u64>()).max();
                let found = u128::from(found.unwrap_or(0));
                assert!(
                    found <= most,
                    "{text}: {found} in {stretch:?}, at most {most}"
                );
            }
        }
    }

    /// The printed Rust code compiles to the quota.
    #[test]
    fn the_line_of_rust_is_the_quota() {
        let quotas = [
            (
                Quota::per_minute(100).burst(200).soft(10),
                "Quota::per_minute(100).burst(200).soft(10)",
            ),
            (
                Quota::per(5, Duration::from_secs(10)).sliding_log(),
                "Quota::per(5, Duration::from_secs(10)).sliding_log()",
            ),
            (
                Quota::per(5, Duration::from_nanos(1_500_000_000)).fixed_window(),
                "Quota::per(5, Duration::from_nanos(1500000000)).fixed_window()",
            ),
            (
                Quota::per_hour(6).sliding_window().slices(6),
                "Quota::per_hour(6).sliding_window().slices(6)",
            ),
            (
                Quota::per_day(3).leaky_bucket(7),
                "Quota::per_day(3).leaky_bucket(7)",
            ),
            (
                Quota::per_month(9).starting_on(15).in_zone("Europe/Berlin"),
                "Quota::per_month(9).starting_on(15).in_zone(\"Europe/Berlin\")",
            ),
            (
                Quota::per_hour(20)
                    .sliding_window()
                    .slices(6)
                    .varying(const { &[(TimeOfDay::MIDNIGHT, 5), (TimeOfDay::at(8, 30), 20)] }),
                "Quota::per_hour(20).sliding_window().slices(6).varying(const { &[(TimeOfDay::at(0, 0), 5), \
                 (TimeOfDay::at(8, 30), 20)] })",
            ),
            (
                Quota::per_hour(20)
                    .fixed_window()
                    .varying(const { &[(TimeOfDay::MIDNIGHT, 5), (TimeOfDay::at(8, 0), 20)] })
                    .in_zone("Europe/Berlin"),
                "Quota::per_hour(20).fixed_window().varying(const { &[(TimeOfDay::at(0, 0), 5), \
                 (TimeOfDay::at(8, 0), 20)] }).in_zone(\"Europe/Berlin\")",
            ),
            (
                Quota::per_day(9).in_zone("UTC").soft(10),
                "Quota::per_day(9).soft(10).in_zone(\"UTC\")",
            ),
            (
                Quota::per_second(3).refill_every(Duration::from_secs(1)),
                "Quota::per_second(3).refill_every(Duration::from_secs(1))",
            ),
        ];
        for (quota, line) in quotas {
            assert_eq!(rust(&quota), line);
        }
    }
}
