//! Header fields for the client, which the proxy adds to its response.

use std::str::FromStr;

use crate::messages::{Code, DescriptorStatus, HeaderValue, RateLimit, Unit};

/// A set of header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderSet {
    /// `Retry-After`, when the request is over its limit: the proxy adds fields to all responses alike.
    RetryAfter,
    /// `RateLimit` and `RateLimit-Policy`.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    Legacy,
    /// `ratelimit-limit`, `ratelimit-remaining` and `ratelimit-reset`, as Envoy's reference service, or under
    /// [other names](crate::decide::Modes::header_names).
    Envoy,
}

/// The names of the fields with the limit, what remains of it, and the seconds to its end.
#[derive(Debug, Clone)]
pub(crate) struct HeaderNames(pub(crate) [String; 3]);

impl HeaderNames {
    fn legacy() -> Self {
        Self(["limit", "remaining", "reset"].map(|word| format!("x-ratelimit-{word}")))
    }
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self(["limit", "remaining", "reset"].map(|word| format!("ratelimit-{word}")))
    }
}

/// The words of [`HeaderSet`].
const WORDS: [(&str, HeaderSet); 4] = [
    ("retry-after", HeaderSet::RetryAfter),
    ("draft11", HeaderSet::Draft11),
    ("legacy", HeaderSet::Legacy),
    ("envoy", HeaderSet::Envoy),
];

/// `retry-after`, `draft11`, `legacy` or `envoy`.
impl FromStr for HeaderSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = WORDS.into_iter().find(|(word, _)| *word == text);
        known.map(|(_, set)| set).ok_or_else(|| {
            let words = WORDS.map(|(word, _)| word).join(", ");
            format!("{text:?} is no set of headers; there are {words}")
        })
    }
}

/// The fields about one limit.
pub(crate) fn fields(
    sets: &[HeaderSet],
    names: &HeaderNames,
    status: &DescriptorStatus,
    is_over: bool,
) -> Vec<HeaderValue> {
    let Some(limit) = &status.current_limit else {
        return Vec::new();
    };
    let remaining = status.limit_remaining;
    let reset = status.duration_until_reset.unwrap_or_default().seconds;
    let mut fields = Vec::new();
    let mut put = |key: &str, value: String| {
        let key = key.to_owned();
        fields.push(HeaderValue { key, value });
    };
    for set in sets {
        match set {
            // What is over its limit in shadow mode passed.
            HeaderSet::RetryAfter if is_over && status.code() == Code::OverLimit => {
                put("retry-after", reset.to_string());
            }
            HeaderSet::RetryAfter => {}
            HeaderSet::Draft11 => {
                let (name, window) = (name(limit), window(limit));
                let requests = limit.requests_per_unit;
                put(
                    "ratelimit-policy",
                    format!("\"{name}\";q={requests};w={window}"),
                );
                put("ratelimit", format!("\"{name}\";r={remaining};t={reset}"));
            }
            HeaderSet::Legacy | HeaderSet::Envoy => {
                let HeaderNames(names) = match set {
                    HeaderSet::Legacy => &HeaderNames::legacy(),
                    _ => names,
                };
                let values = [
                    u64::from(limit.requests_per_unit),
                    remaining.into(),
                    reset.unsigned_abs(),
                ];
                for (name, value) in names.iter().zip(values) {
                    put(name, value.to_string());
                }
            }
        }
    }
    fields
}

/// The limit's name as far as a structured field can say it.
fn name(limit: &RateLimit) -> String {
    let plain = limit
        .name
        .chars()
        .filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'));
    Some(plain.collect())
        .filter(|name: &String| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}

fn window(limit: &RateLimit) -> u64 {
    let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
    unit.seconds() * u64::from(limit.unit_multiplier.unwrap_or(1))
}
