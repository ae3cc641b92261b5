//! Responses, as a client reads them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::strict_field_parser::{Item, Value, list};

/// The next step of a client after a response.
#[derive(Debug, Clone, Copy)]
pub struct NextStep {
    pub retry_after: Option<Duration>,
    pub paused_for: Option<Duration>,
    /// Units, and how long they have to last.
    pub left: Option<(u64, Duration)>,
}

/// The fields that clients read.
const NAMES: [&str; 31] = [
    "ratelimit",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "date",
    "age",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "ratelimit-remaining",
    "ratelimit-reset",
    "grpc-status",
    "grpc-retry-pushback-ms",
    "grpc-status-details-bin",
    "content-type",
    "retry-after-ms",
    "x-ratelimit-reset-after",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "x-should-retry",
];

const STATUSES: [u16; 8] = [200, 200, 429, 503, 403, 529, 302, 500];

/// No pause is longer, and no window.
const LONGEST: (Duration, Duration) = (Duration::from_secs(3_600), Duration::from_secs(600));

/// The first byte chooses the status, the rest are lines, each a byte that chooses the field and its
/// value. `respond` has a client read the response to its only request; the crate that the fuzz targets
/// see has the client, this one does not.
pub fn check(data: &[u8], respond: impl Fn(StatusCode, &HeaderMap) -> NextStep) {
    let (choice, lines) = data.split_first().unwrap_or((&0, &[]));
    let status = StatusCode::from_u16(STATUSES[usize::from(choice % 8)]).unwrap();
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').take(1_000) {
        let (choice, value) = line.split_first().unwrap_or((&0, &[]));
        let name = HeaderName::from_static(NAMES[usize::from(*choice) % NAMES.len()]);
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    let next = respond(status, &headers);
    let (longest_pause, longest_window) = LONGEST;
    assert!(next.retry_after <= Some(longest_pause), "{next:?}");
    assert!(next.paused_for <= Some(longest_pause), "{next:?}");
    let window = next.left.map(|(_, window)| window);
    assert!(window <= Some(longest_window), "{next:?}");
    if headers.keys_len() == headers.len() && headers.len() == 1 && status == 200 {
        a_strict_parser_reads_the_same(&headers, next);
    }
}

fn a_strict_parser_reads_the_same(headers: &HeaderMap, next: NextStep) {
    let field = headers.get("ratelimit");
    let Some(text) = field.and_then(|field| field.to_str().ok()) else {
        return;
    };
    let Some(items) = list(text).filter(|items| items.len() <= 64 && text.len() <= 8_192) else {
        return;
    };
    let others = ["a", "w", "c", "pk"];
    let is_plain = |item: &Item| {
        item.parameters
            .iter()
            .all(|(name, _)| !others.contains(&&**name))
    };
    if !items.iter().all(is_plain) {
        return;
    }
    let declared = items.iter().filter_map(|item| {
        let number = |wanted: &str| match item.parameters.iter().find(|(name, _)| name == wanted) {
            Some((_, Value::Integer(number))) => Some(*number),
            _ => None,
        };
        let seconds = number("t").filter(|seconds| *seconds > 0)?;
        Some((number("r")?, Duration::from_secs(seconds).min(LONGEST.1)))
    });
    // Only quotas with the least left count; of several equal ones only four are kept.
    let expected = declared.clone().min();
    let least = expected.map(|(units, _)| units);
    let as_little = declared.filter(|(units, _)| Some(*units) == least).count();
    match as_little {
        0..=4 => assert_eq!(next.left, expected, "{text:?}"),
        _ => assert_eq!(next.left.map(|(units, _)| units), least, "{text:?}"),
    }
}
