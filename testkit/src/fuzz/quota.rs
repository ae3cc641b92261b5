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
            assert!(
                matches!(
                    error.kind(),
                    ConfigErrorKind::Syntax
                        | ConfigErrorKind::Overflow
                        | ConfigErrorKind::Limit
                        | ConfigErrorKind::Period
                        | ConfigErrorKind::Rate
                ),
                "{error:?}"
            );
        }
    }
}

fn accepted(text: &str, quota: Quota) {
    assert_eq!(quota.check(), Ok(()));
    assert!((Duration::from_nanos(1)..=NINETEEN_YEARS).contains(&quota.period()));
    // The limit is what stands before the slash: digits, no sign.
    let (limit, _) = text.split_once('/').unwrap();
    let limit = limit.trim();
    assert!(limit.bytes().all(|byte| byte.is_ascii_digit()), "{limit:?}");
    assert_eq!(limit.parse(), Ok(quota.limit()));

    let again: Quota = quota.to_string().parse().unwrap();
    assert_eq!(again, quota);
}
