//! The fields that responses carry, for any decision.

use std::time::Duration;

use http::{Request, Response};
use tower_ratelimit::{
    Decision, Headers,
    clock::Timestamp,
    decision::{Policy, QuotaStatus, Unit},
    headers::ResetFormat,
};

use super::{
    strict_field_parser::{Item, Value, list},
    stub_limiter::answer,
};

/// Names that a limiter of one's own may have, and what a String of RFC 9651 makes of them.
const NAMES: [(&str, &str); 8] = [
    ("default", "default"),
    ("10-per-1s", "10-per-1s"),
    ("", ""),
    ("a\"b\\c", "a\"b\\c"),
    ("a, \"b\";q=1", "a, \"b\";q=1"),
    ("na\u{ef}ve", "na?ve"),
    ("line\r\nbreak", "line??break"),
    ("\u{0}\u{7f}~ ", "??~ "),
];

/// The largest Integer of RFC 9651.
const LARGEST: u64 = 999_999_999_999_999;

pub fn check(data: &[u8]) {
    let mut data = Source(data);
    let choice = data.byte();
    let policies: Vec<_> = (0..=choice % 4).map(|_| data.policy()).collect();
    let statuses: Vec<_> = policies.iter().map(|policy| data.status(policy)).collect();

    let at = Timestamp::from_micros(data.number());
    let denied = statuses.iter().any(QuotaStatus::is_denied);
    let decision = if denied {
        Decision::denied(at, statuses.clone())
    } else {
        Decision::allowed(1, at, statuses.clone())
    };
    let reset = match choice & 0x40 {
        0 => ResetFormat::DeltaSeconds,
        _ => ResetFormat::EpochSeconds,
    };
    let headers = Headers::new()
        .x_ratelimit(Some(reset))
        .x_ratelimit_retry_after(choice & 0x80 != 0);
    let response = answer(policies.clone(), decision, headers, Request::default());

    assert_eq!(response.status(), if denied { 429 } else { 200 });
    policies_are_reported(&response, &statuses);
    what_remains_is_reported(&response, &statuses);
    the_wait_is_reported(&response, &statuses, choice & 0x80 != 0);
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        let Some(text) = field(&response, name) else {
            continue;
        };
        assert!((1..=15).contains(&text.len()), "{name}: {text}");
        assert!(
            text.bytes().all(|byte| byte.is_ascii_digit()),
            "{name}: {text}"
        );
    }
}

fn policies_are_reported(response: &Response<String>, statuses: &[QuotaStatus<'_>]) {
    let items = list(field(response, "ratelimit-policy").unwrap()).unwrap();
    let expected = statuses.iter().map(|status| {
        let mut parameters = vec![integer("q", status.limit())];
        match (status.unit(), status.window()) {
            (Unit::ConcurrentRequests, _) => {
                let unit = Value::String("concurrent-requests".into());
                parameters.push(("qu".into(), unit));
            }
            (_, Some(window)) => parameters.push(integer("w", seconds(window).max(1))),
            _ => {}
        }
        item(status, parameters)
    });
    assert_eq!(items, expected.collect::<Vec<_>>());
}

fn what_remains_is_reported(response: &Response<String>, statuses: &[QuotaStatus<'_>]) {
    let mut expected = Vec::new();
    for status in statuses {
        let Some(remaining) = status.remaining() else {
            continue;
        };
        let mut parameters = vec![integer("r", remaining)];
        let window = status.effective_window();
        if let Some(window) = window.filter(|_| status.unit() == Unit::Requests) {
            parameters.push(integer("t", seconds(window)));
        }
        expected.push(item(status, parameters));
    }
    match field(response, "ratelimit") {
        Some(text) => assert_eq!(list(text), Some(expected)),
        None => assert_eq!(expected, []),
    }
}

/// The longest wait of those that denied, unless one can never fit.
fn the_wait_is_reported(response: &Response<String>, statuses: &[QuotaStatus<'_>], twice: bool) {
    let denied = statuses.iter().filter(|status| status.is_denied());
    let waits: Option<Vec<_>> = denied
        .map(|status| status.retry_after().map(seconds))
        .collect();
    let longest = waits.and_then(|waits| waits.into_iter().max());
    let expected = longest.map(|wait| wait.clamp(1, LARGEST).to_string());
    assert_eq!(field(response, "retry-after"), expected.as_deref());
    let legacy = field(response, "x-ratelimit-retry-after");
    assert_eq!(legacy, expected.as_deref().filter(|_| twice));
}

/// The only line of a field.
fn field<'r>(response: &'r Response<String>, name: &str) -> Option<&'r str> {
    let mut lines = response.headers().get_all(name).iter();
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "{name}");
    Some(line.to_str().unwrap())
}

fn seconds(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    u64::try_from(nanos.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

fn integer(name: &str, value: u64) -> (String, Value) {
    (name.into(), Value::Integer(value.min(LARGEST)))
}

fn item(status: &QuotaStatus<'_>, parameters: Vec<(String, Value)>) -> Item {
    let name = NAMES.iter().find(|(name, _)| *name == status.name());
    Item {
        text: name.unwrap().1.into(),
        parameters,
    }
}

/// Bytes to make things of; zeros when they are used up.
struct Source<'d>(&'d [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A number of any size, extremes among them.
    fn number(&mut self) -> u64 {
        let len = usize::from(self.byte() % 10);
        if len == 9 {
            return u64::MAX;
        }
        (0..len).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// At most as many microseconds as fit, which is as long as statuses can be.
    fn duration(&mut self) -> Duration {
        match self.byte() % 4 {
            0 => Duration::from_nanos(self.number()),
            1 => Duration::from_micros(self.number().min(u64::MAX - 2)),
            2 => Duration::from_secs(self.number() % 10_000_000),
            _ => Duration::from_secs(self.number() % 1_000),
        }
    }

    fn policy(&mut self) -> Policy {
        let choice = self.byte();
        let (name, _) = NAMES[usize::from(choice % 8)];
        let mut policy = match choice & 0x20 {
            0 => Policy::new(name, self.number()),
            _ => Policy::owned(name, self.number()),
        };
        if choice & 0x08 != 0 {
            policy = policy.with_window(self.duration());
        }
        if choice & 0x10 != 0 {
            policy = policy.with_unit(Unit::ConcurrentRequests);
        }
        policy
    }

    fn status<'a>(&mut self, policy: &'a Policy) -> QuotaStatus<'a> {
        let choice = self.byte();
        let mut status = QuotaStatus::new(policy);
        if choice & 0x20 != 0 {
            status = status.with_remaining(self.number());
        }
        if choice & 0x40 != 0 {
            status = status.with_effective_window(self.duration());
        }
        if choice & 0x80 != 0 {
            let wait = !self.byte().is_multiple_of(4);
            status = status.with_denial(wait.then(|| self.duration()));
        }
        status
    }
}
