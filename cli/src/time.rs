//! Instants as RFC 3339 writes them, with or without seconds.

use std::time::{SystemTime, UNIX_EPOCH};

use tower_ratelimit::Timestamp;

/// The instant of the operating system's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::from_secs(since.map_or(0, |since| since.as_secs()))
}

/// Reads `2026-11-21T03:00Z`, `2026-11-21T03:00:30Z` or `2026-11-21T08:30+05:30`.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{text:?} is no time; accepted are, for example, 2026-11-21T03:00Z and \
             2026-11-21T08:30+05:30"
        )
    };
    instant(text).map(Timestamp::from_secs).ok_or_else(wrong)
}

fn instant(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let (clock, distance) = match time.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => {
            let at = time.rfind(['+', '-'])?;
            let sign = if time[at..].starts_with('-') { -1 } else { 1 };
            (&time[..at], sign * minutes(&time[at + 1..])?)
        }
    };
    let mut numbers = date.splitn(3, '-').map(number);
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let (hours, seconds) = match clock.matches(':').count() {
        1 => (clock, 0),
        _ => {
            let (hours, seconds) = clock.rsplit_once(':')?;
            (hours, number(seconds).filter(|seconds| *seconds < 60)?)
        }
    };
    let known = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    let days = days_since_epoch(year, month, day);
    let minute = days * 1_440 + minutes(hours)? - distance;
    u64::try_from(minute * 60 + seconds)
        .ok()
        .filter(|_| known && year >= 1970)
}

/// `03:00` in minutes.
fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

fn number(text: &str) -> Option<i64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let years = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 });
    let months = (1..month).map(|month| days_of(year, month));
    years.sum::<i64>() + months.sum::<i64>() + day - 1
}

/// The instant as `2026-11-21T03:00:00Z`.
pub(crate) fn display(now: Timestamp) -> String {
    let seconds = now.as_micros() / 1_000_000;
    let (mut days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    let (hours, minutes) = (rest / 3_600, rest / 60 % 60);
    format!(
        "{year:04}-{month:02}-{:02}T{hours:02}:{minutes:02}:{:02}Z",
        days + 1,
        rest % 60
    )
}
