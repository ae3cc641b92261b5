//! Quotas from texts.

use std::time::Duration;

use tower_ratelimit::{ConfigErrorKind, Quota};

const NINETEEN_YEARS: Duration = Duration::from_secs(19 * 365 * 86_400);

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Quota>() {
        Ok(quota) => accepted(&text, quota),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && message.len() < 1_500, "{message}");
            assert!(of_a_quota(error.kind()), "{error:?}");
        }
    }
}

/// Whether a text can be wrong in this way.
const fn of_a_quota(kind: ConfigErrorKind) -> bool {
    matches!(
        kind,
        ConfigErrorKind::Syntax
            | ConfigErrorKind::Overflow
            | ConfigErrorKind::Limit
            | ConfigErrorKind::Period
            | ConfigErrorKind::Rate
            | ConfigErrorKind::Burst
            | ConfigErrorKind::Queue
            | ConfigErrorKind::RefillStep
            | ConfigErrorKind::Slices
            | ConfigErrorKind::LogLimit
            | ConfigErrorKind::Soft
            | ConfigErrorKind::Debt
            | ConfigErrorKind::Calendar
            | ConfigErrorKind::Zone
            | ConfigErrorKind::Varying
    )
}

fn accepted(text: &str, quota: Quota) {
    assert_eq!(quota.check(), Ok(()));
    assert!((Duration::from_nanos(1)..=NINETEEN_YEARS).contains(&quota.period()));
    // The limit is what stands before the slash: digits, no sign.
    let (limit, rest) = text.split_once('/').unwrap();
    let limit = limit.trim();
    assert!(limit.bytes().all(|byte| byte.is_ascii_digit()), "{limit:?}");
    assert_eq!(limit.parse(), Ok(quota.limit()));
    capacity_is_that_of_the_text(rest, quota);

    let printed = quota.to_string();
    assert_eq!(printed.parse(), Ok(quota), "{printed}");
    assert_eq!(reversed(&printed).parse(), Ok(quota), "{printed}");
    let twice = format!("{text} soft 1% soft 1%").parse::<Quota>();
    assert_eq!(
        twice.map_err(|error| error.kind()),
        Err(ConfigErrorKind::Syntax)
    );
}

fn capacity_is_that_of_the_text(words: &str, quota: Quota) {
    let mut tokens = words.split_whitespace();
    let capacity = match tokens.find(|token| matches!(*token, "burst" | "queue")) {
        None => quota.limit(),
        Some("burst") => tokens.next().unwrap().parse().unwrap(),
        Some(_) => tokens.next().unwrap().parse::<u64>().unwrap() + 1,
    };
    assert_eq!(quota.capacity(), capacity, "{words:?}");
}

/// The rate and its words from the last to the first, and with hyphens.
fn reversed(printed: &str) -> String {
    let (rate, words) = printed.split_once(' ').unwrap_or((printed, ""));
    let mut groups: Vec<String> = Vec::new();
    for token in words.split_whitespace() {
        let is_zone = groups.last().is_some_and(|group| group == "in");
        let is_value = is_zone || token.starts_with(|c: char| c.is_ascii_digit());
        match groups.last_mut().filter(|_| is_value) {
            Some(group) => *group += &format!(" {token}"),
            None => groups.push(token.replace('_', "-")),
        }
    }
    groups.push(rate.to_owned());
    groups.reverse();
    groups.join(" ")
}
