//! Headers: the fields that report limits to clients.
//!
//! | field | on | switch |
//! |---|---|---|
//! | `RateLimit-Policy: "default";q=100;w=60` | every response | [`ietf`](Headers::ietf) |
//! | `RateLimit: "default";r=42;t=26` | every response | [`ietf`](Headers::ietf) |
//! | `X-RateLimit-Limit: 100` | every response | [`x_ratelimit`](Headers::x_ratelimit) |
//! | `X-RateLimit-Remaining: 42` | every response | [`x_ratelimit`](Headers::x_ratelimit) |
//! | `X-RateLimit-Reset: 26` | every response | [`x_ratelimit`](Headers::x_ratelimit) |
//! | `Retry-After: 7` | denials; 1 with a limiter that fails | [`retry_after`](Headers::retry_after) |
//! | `X-RateLimit-Retry-After: 7` | denials, off by default | [`x_ratelimit_retry_after`](Headers::x_ratelimit_retry_after) |
//!
//! The draft of the first two has expired, and its successor renames `r` and `t`, see [`IetfDraft`].
//!
//! Redirects (3xx) get none of them: a client that has nothing left might not follow. Denials of
//! gRPC calls report the wait in gRPC's own fields instead, see [`reject`](crate::reject).
//!
//! # The numbers
//!
//! - `q` and `X-RateLimit-Limit`: the most units that are available at once; `w`: the seconds in
//!   which that many are renewed.
//! - `r` and `X-RateLimit-Remaining`: units that are left.
//! - `t` and `X-RateLimit-Reset`: seconds within which a client can use no more than what is left;
//!   of a quota that denied, the wait. A client that spreads its remaining units over them is not denied.
//! - `Retry-After`: the longest wait of the quotas that denied. It is left out when the request
//!   can never fit, and when the wait is unknown, as for a limit on concurrency.
//!
//! Seconds are rounded up, so that no client that waits returns too early, and units down. With several
//! quotas the IETF fields list each, and the others report the one that binds, see
//! [`Decision::binding`](crate::Decision::binding). A limiter that does not report what is left gets the
//! policy and the limit alone.
//!
//! # Fields that exist already
//!
//! From an inner layer or from the handler, treated alike:
//!
//! - the IETF fields are lists, so a second line is added;
//! - of two `X-RateLimit-` sets the one with less remaining stays, as a whole; of equals the
//!   first. Fractions are rounded down. A set without remaining is replaced by one with it. A set whose remaining is no number, or
//!   occurs twice, stays;
//! - of two waits the longer stays; a date stays.
//!
//! Two layers whose policies have the same name are not detected: name them apart, see
//! [`Quota::named`](crate::Quota::named).
//!
//! Scripts in a browser can read these fields across origins only when
//! `Access-Control-Expose-Headers` lists them.

mod config;
mod renderer;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::LazyLock, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

use crate::{
    decision::{Decision, Policy, Status, Unit, whole_seconds},
    small_list::SmallList,
};

pub use self::config::{IetfDraft, ResetFormat};
#[doc(hidden)]
pub use self::{config::Headers, renderer::Renderer};

const GRPC: &str = "application/grpc";

/// Whether a request or response with these fields is gRPC, by its `Content-Type`. gRPC-Web, whose
/// trailers are part of the body, is not.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let Some((media_type, rest)) = value.as_bytes().split_at_checked(GRPC.len()) else {
        return false;
    };
    media_type.eq_ignore_ascii_case(GRPC.as_bytes())
        && matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..])
}

/// The numbers of a decision about a layer's one quota. All its fields follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct QuotaNumbers {
    pub remaining: u64,
    /// Seconds of the effective window, which is the wait of a denial: the parameter `t`.
    seconds: u64,
    reset: u64,
}

/// The most quotas whose texts are cached.
const MOST_QUOTAS: usize = 4;

/// The numbers of a decision about a layer's few quotas, beside those of the binding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SeveralNumbers {
    /// Units left and seconds of each, in the order of the policies; zero behind them.
    pub of_each: [(u64, u64); MOST_QUOTAS],
    /// The index of the binding quota: numbers alone do not determine that of a denial.
    binding: usize,
    /// The index of the layer's policies: rules have several sets.
    set: usize,
}

impl SeveralNumbers {
    /// The numbers of a decision about these policies; `None` if they are many, or one does not report all numbers.
    fn of(
        decision: &Decision,
        (set, policies): (usize, &[Policy]),
        format: Option<ResetFormat>,
    ) -> Option<(Self, QuotaNumbers)> {
        let mut of_each = [(0, 0); MOST_QUOTAS];
        let places = of_each.get_mut(..policies.len())?;
        if decision.statuses().len() != policies.len() {
            return None;
        }
        let mut are_own = true;
        decision.quotas.for_each(|at, policy, status| {
            match (places.get_mut(at), policies.get(at)) {
                (Some(place), Some(own)) if are_own && policy == own => {
                    match numbers_of(policy, status) {
                        (Some(remaining), Some(seconds)) => *place = (remaining, seconds),
                        _ => are_own = false,
                    }
                }
                _ => are_own = false,
            }
        });
        if !are_own {
            return None;
        }
        let binding = decision.quotas.binding_place();
        let status = decision.statuses().get(binding)?;
        let (remaining, seconds) = of_each[binding];
        let numbers = QuotaNumbers {
            remaining,
            seconds,
            reset: reset(format, decision, status, seconds),
        };
        Some((
            Self {
                of_each,
                binding,
                set,
            },
            numbers,
        ))
    }
}

/// The numbers of a quota that the fields report.
#[derive(Debug, Clone, Copy)]
struct ReportedQuota<'a> {
    policy: &'a Policy,
    /// The limit in force.
    pub limit: u64,
    pub remaining: Option<u64>,
    /// Seconds of the effective window: `None` without `remaining`, since nothing is reset then, and
    /// for a limit on concurrency.
    seconds: Option<u64>,
    /// The number of `X-RateLimit-Reset`.
    reset: Option<u64>,
}

impl<'a> ReportedQuota<'a> {
    #[inline]
    fn of(
        (policy, status): (&'a Policy, &Status),
        decision: &Decision,
        format: Option<ResetFormat>,
    ) -> Self {
        let (remaining, seconds) = numbers_of(policy, status);
        Self {
            policy,
            limit: status.limit(policy),
            remaining,
            seconds,
            reset: seconds.map(|seconds| reset(format, decision, status, seconds)),
        }
    }

    /// The numbers, if all are known.
    #[inline]
    fn numbers(&self) -> Option<QuotaNumbers> {
        Some(QuotaNumbers {
            remaining: self.remaining?,
            seconds: self.seconds?,
            reset: self.reset?,
        })
    }
}

/// The units left, and the seconds of the effective window.
#[inline]
fn numbers_of(policy: &Policy, status: &Status) -> (Option<u64>, Option<u64>) {
    let remaining = status.remaining();
    let timed = remaining.is_some() && policy.unit() != Unit::ConcurrentRequests;
    (remaining, status.seconds().filter(|_| timed))
}

/// The number of `X-RateLimit-Reset` for an effective window of `seconds`.
#[inline]
fn reset(format: Option<ResetFormat>, decision: &Decision, status: &Status, seconds: u64) -> u64 {
    match format {
        Some(ResetFormat::EpochSeconds) => {
            let now = Duration::from_micros(decision.decided_at().as_micros());
            let window = status.effective_window().unwrap_or_default();
            // Rounded once: two roundings up would report a second too many.
            whole_seconds(now.saturating_add(window))
        }
        _ => seconds,
    }
}

/// The texts of the fields of one response; `None` where it does not have the field.
#[derive(Debug)]
struct FieldTexts {
    /// `RateLimit-Policy`, `RateLimit`, `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    values: [Option<HeaderValue>; 5],
    /// The number of `X-RateLimit-Remaining`.
    pub remaining: Option<u64>,
    /// The seconds that a denial waits.
    seconds: u64,
    /// The text of these seconds, if it is not that of `X-RateLimit-Reset`.
    other_wait: Option<HeaderValue>,
}

impl FieldTexts {
    /// The wait of a denial.
    fn wait(&self) -> Option<&HeaderValue> {
        self.other_wait.as_ref().or(self.values[4].as_ref())
    }
}

/// The texts of a layer's own policies, the same in each response.
#[derive(Debug)]
struct ConstantTexts {
    /// `RateLimit-Policy`; `None` if responses do not have it.
    policies: Option<HeaderValue>,
    of_each: Box<[ConstantText]>,
}

#[derive(Debug)]
struct ConstantText {
    /// The item of `RateLimit` up to its first number.
    opening: Box<[u8]>,
    limit: HeaderValue,
}

impl ConstantTexts {
    fn new(choice: &Headers, policies: &[Policy]) -> Self {
        let ietf = choice.ietf.filter(|_| !policies.is_empty());
        let of_each = policies.iter().map(|policy| {
            let mut opening = TextBuffer::new();
            push_opening(policy, &mut opening);
            ConstantText {
                opening: opening.text.as_slice().into(),
                limit: number_value(policy.limit()),
            }
        });
        Self {
            policies: ietf.map(|draft| {
                let mut to = TextBuffer::new();
                let policies = policies.iter().map(|policy| (policy, policy.limit()));
                let list = push_policies(draft, policies, &mut to);
                value_of(&to.finish(), list)
            }),
            of_each: of_each.collect(),
        }
    }
}

impl FieldTexts {
    /// Writes all texts into one buffer, except those that are `known`. `place` is the index of the binding quota.
    // Inlined: the texts of one quota then need no loop.
    #[inline(always)]
    fn write<'a>(
        choice: &Headers,
        known: Option<&ConstantTexts>,
        quotas: impl Iterator<Item = ReportedQuota<'a>> + Clone,
        (place, binding): (usize, Option<ReportedQuota<'a>>),
        wait: Option<u64>,
    ) -> Self {
        let mut buffer = TextBuffer::new();
        let ietf = choice.ietf.filter(|_| binding.is_some());
        let list = ietf.and_then(|draft| status_list(draft, quotas.clone(), known, &mut buffer));
        let policies = ietf.filter(|_| known.is_none()).map(|draft| {
            let policies = quotas.map(|quota| (quota.policy, quota.limit));
            push_policies(draft, policies, &mut buffer)
        });
        let set = binding.filter(|_| choice.x_ratelimit.is_some());
        let limit = set.filter(|_| known.is_none());
        let limit = limit.map(|quota| buffer.number(quota.limit));
        let remaining = set.and_then(|quota| quota.remaining);
        let units = remaining.map(|units| buffer.number(units));
        let reset = set.and_then(|quota| quota.reset);
        let reset = reset.map(|reset| buffer.number(reset));
        let other = wait.filter(|_| wait != set.and_then(|quota| quota.reset));
        let other = other.map(|wait| buffer.number(wait));
        let finished = buffer.finish();
        let value = |text| value_of(&finished, text);
        let (policies, limit) = match known {
            Some(known) => {
                let limit = set.map(|_| known.of_each[place].limit.clone());
                (known.policies.clone(), limit)
            }
            None => (policies.map(value), limit.map(value)),
        };
        Self {
            values: [
                policies,
                list.map(value),
                limit,
                units.map(value),
                reset.map(value),
            ],
            remaining,
            other_wait: other.map(value),
            seconds: wait.unwrap_or_default(),
        }
    }
}

const COMMA: &[u8] = b", ";

/// Writes the value of `RateLimit-Policy`, by each policy and its limit in force.
fn push_policies<'a>(
    IetfDraft::Draft11: IetfDraft,
    policies: impl Iterator<Item = (&'a Policy, u64)>,
    to: &mut TextBuffer,
) -> BufferedText {
    let start = to.len();
    for (policy, limit) in policies {
        if to.len() > start {
            to.push(COMMA);
        }
        push_quoted(policy.name(), to);
        to.push(b";q=");
        to.push_number(limit);
        let window = policy.window();
        if let Some(window) = window.filter(|_| policy.unit() != Unit::ConcurrentRequests) {
            to.push(b";w=");
            to.push_number(whole_seconds(window).max(1));
        }
        match policy.unit() {
            Unit::Requests => {}
            Unit::ConcurrentRequests => to.push(b";qu=\"concurrent-requests\""),
            Unit::Named(unit) => {
                to.push(b";qu=");
                push_quoted(unit.as_str(), to);
            }
        }
    }
    to.field_since(start)
}

/// Writes a String of RFC 9651, with a `?` for each character that is not printable ASCII.
///
/// The name of a checked quota has no such character. A policy of a user's own limiter may have one,
/// and clients would discard the whole field.
fn push_quoted(name: &str, to: &mut TextBuffer) {
    to.push(b"\"");
    if name
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\')
    {
        to.push(name.as_bytes());
    } else {
        for character in name.chars() {
            match character {
                '"' | '\\' => to.push(&[b'\\', character as u8]),
                ' '..='~' => to.push(&[character as u8]),
                _ => to.push(b"?"),
            }
        }
    }
    to.push(b"\"");
}

/// The names of these policies that `line`, a value of `RateLimit-Policy`, lists as well.
fn named_in<'a>(
    names: impl Iterator<Item = &'a str>,
    line: &HeaderValue,
) -> impl Iterator<Item = &'a str> {
    let items: Vec<_> = line.as_bytes().split(|byte| *byte == b',').collect();
    names.filter(move |name| {
        let mut quoted = TextBuffer::new();
        push_quoted(name, &mut quoted);
        let mut items = items.iter().map(|item| item.trim_ascii_start());
        items.any(|item| {
            let rest = item.strip_prefix(quoted.text.as_slice());
            matches!(rest, Some([] | [b';' | b' ', ..]))
        })
    })
}

/// Writes the item of `RateLimit` up to its first number.
fn push_opening(policy: &Policy, to: &mut TextBuffer) {
    push_quoted(policy.name(), to);
    to.push(b";r=");
}

/// Writes the value of `RateLimit`; `None` if the remaining units of no quota are known.
#[inline(always)]
fn status_list<'a>(
    IetfDraft::Draft11: IetfDraft,
    quotas: impl Iterator<Item = ReportedQuota<'a>>,
    known: Option<&ConstantTexts>,
    to: &mut TextBuffer,
) -> Option<BufferedText> {
    for (place, quota) in quotas.enumerate() {
        let Some(remaining) = quota.remaining else {
            continue;
        };
        if to.len() > 0 {
            to.push(COMMA);
        }
        match known.and_then(|known| known.of_each.get(place)) {
            Some(known) => to.push(&known.opening),
            None => push_opening(quota.policy, to),
        }
        to.push_number(remaining);
        if let Some(seconds) = quota.seconds {
            to.push(b";t=");
            to.push_number(seconds);
        }
    }
    (to.len() > 0).then(|| to.field_since(0))
}

/// Enough for three quotas with ordinary names, and for the numbers of `X-RateLimit` fields.
const INLINE_LEN: usize = 144;

/// The texts of one response's fields, written one after another.
///
/// The buffer is on the stack while it is written. A lone text is copied from it; several move to the
/// heap in one piece and share it: at most one allocation for a response.
struct TextBuffer {
    text: SmallList<u8, INLINE_LEN>,
}

/// The text of one field, which the finished buffer turns into a value.
enum BufferedText {
    Fixed(&'static HeaderValue),
    Written(Range<usize>),
}

impl TextBuffer {
    #[inline]
    fn new() -> Self {
        Self {
            text: SmallList::filled(0, 0),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.text.as_slice().len()
    }

    #[inline]
    fn push(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    #[inline]
    fn push_number(&mut self, number: u64) {
        match short(number) {
            Some(text) => self.push(text.as_bytes()),
            None => digits(number, |digits| self.push(digits)),
        }
    }

    #[inline]
    fn field_since(&mut self, start: usize) -> BufferedText {
        BufferedText::Written(start..self.len())
    }

    /// Makes a number a field, and writes it unless it is short.
    #[inline]
    fn number(&mut self, number: u64) -> BufferedText {
        if let Some(value) = short_value(number) {
            return BufferedText::Fixed(value);
        }
        let start = self.len();
        self.push_number(number);
        self.field_since(start)
    }

    #[inline]
    fn finish(self) -> Bytes {
        match self.text {
            SmallList::Short { len: 0, .. } => Bytes::new(),
            SmallList::Long(all) => all.into(),
            short @ SmallList::Short { .. } => Bytes::from_owner(short),
        }
    }
}

/// The value of a field among all texts of the response.
#[inline]
fn value_of(all: &Bytes, text: BufferedText) -> HeaderValue {
    match text {
        BufferedText::Fixed(value) => value.clone(),
        BufferedText::Written(range) => {
            HeaderValue::from_maybe_shared(all.slice(range)).expect(ASCII)
        }
    }
}

const ASCII: &str = "only printable ASCII was written";

/// RFC 9651 Integers have at most 15 digits; one more, and the whole field means nothing.
const LARGEST: u64 = 999_999_999_999_999;

const MOST_DIGITS: usize = 15;

/// Numbers below this are written from a table.
const GROUP: usize = 1_000;

/// `000001002…999`
const DIGITS: &str = match str::from_utf8(&DIGIT_BYTES) {
    Ok(digits) => digits,
    Err(_) => panic!("digits are ASCII"),
};

const DIGIT_BYTES: [u8; 3 * GROUP] = {
    let mut bytes = [b'0'; 3 * GROUP];
    let mut n = 0;
    while n < GROUP {
        bytes[3 * n] += (n / 100) as u8;
        bytes[3 * n + 1] += (n / 10 % 10) as u8;
        bytes[3 * n + 2] += (n % 10) as u8;
        n += 1;
    }
    bytes
};

/// A number of at most three digits, which needs no memory of its own.
#[inline]
fn short(number: u64) -> Option<&'static str> {
    let n = usize::try_from(number).ok().filter(|n| *n < GROUP)?;
    let zeros = usize::from(n < 100) + usize::from(n < 10);
    Some(&DIGITS[3 * n + zeros..3 * n + 3])
}

/// Calls `write` with the digits of `number`, or of [`LARGEST`] if that is less.
#[inline]
fn digits<R>(number: u64, write: impl FnOnce(&[u8]) -> R) -> R {
    let mut rest = number.min(LARGEST);
    let mut text = [0; MOST_DIGITS];
    let mut start = MOST_DIGITS;
    while rest >= GROUP as u64 {
        let group = 3 * (rest % GROUP as u64) as usize;
        rest /= GROUP as u64;
        start -= 3;
        text[start..start + 3].copy_from_slice(&DIGITS.as_bytes()[group..group + 3]);
    }
    let first = short(rest).unwrap_or_default().as_bytes();
    start -= first.len();
    text[start..start + first.len()].copy_from_slice(first);
    write(&text[start..])
}

#[inline]
fn number_value(number: u64) -> HeaderValue {
    match short_value(number) {
        Some(value) => value.clone(),
        None => HeaderValue::from(number.min(LARGEST)),
    }
}

/// A number of at most three digits as a field. All are made once, because each is checked for characters
/// that are not allowed in a field.
#[inline]
fn short_value(number: u64) -> Option<&'static HeaderValue> {
    static VALUES: LazyLock<Box<[HeaderValue]>> = LazyLock::new(|| {
        let numbers = (0..).map_while(short);
        numbers.map(HeaderValue::from_static).collect()
    });
    VALUES.get(usize::try_from(number).ok()?)
}

/// The number in a field, without its fraction; `None` for several lines, and for any other text.
fn parse_number<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Option<u64> {
    let mut lines = lines.into_iter();
    let text = lines.next()?.to_str().ok()?;
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = lines.next().is_none() && is_digits(number) && is_digits(fraction);
    is_number.then(|| number.parse().ok()).flatten()
}

/// Whether the text has digits and nothing else. `u64::from_str` would also take a sign.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
