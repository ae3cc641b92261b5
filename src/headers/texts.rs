//! The texts of the fields: constant parts, the list of `RateLimit`, numbers as digits, and the buffer that they are
//! written into.

use std::{
    collections::HashMap,
    mem,
    ops::Range,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use http::HeaderValue;

use super::{IetfDraft, quota_numbers::KnownNumbers};
use crate::{
    decision::{Policy, Unit, whole_seconds},
    small_bytes::SmallBytes,
};

#[derive(Debug)]
pub(super) struct FieldTexts {
    /// `RateLimit`; `None` if the response does not have it.
    pub(super) list: Option<HeaderValue>,
    /// `X-RateLimit-Remaining`.
    pub(super) remaining: HeaderValue,
    /// `X-RateLimit-Reset`, and the wait of a denial by the one quota.
    pub(super) seconds: HeaderValue,
    /// The wait of a denial by any quotas, if it was written.
    pub(super) wait: Option<HeaderValue>,
}

impl FieldTexts {
    /// Writes all texts into one buffer.
    // Inlined: without a wait the compiler leaves its part out.
    #[inline(always)]
    pub(super) fn write<'a>(
        draft: Option<IetfDraft>,
        quotas: impl Iterator<Item = (KnownNumbers, &'a Arc<PolicyText>)>,
        (remaining, seconds): (u64, u64),
        wait: Option<u64>,
    ) -> Self {
        let mut buffer = TextBuffer::new();
        let list = draft.and_then(|draft| status_list(draft, quotas, &mut buffer));
        let (remaining, seconds) = (buffer.number(remaining), buffer.number(seconds));
        let wait = wait.map(|wait| buffer.number(wait));
        let finished = buffer.finish();
        Self {
            wait: wait.map(|text| finished.value(text)),
            remaining: finished.value(remaining),
            seconds: finished.value(seconds),
            list: list.map(|text| match (text, finished) {
                // The last value nearly always is the whole text.
                (BufferedText::Written(range), FinishedTexts::Shared(whole))
                    if range.len() == whole.len() =>
                {
                    HeaderValue::from_maybe_shared(whole).expect(ASCII)
                }
                (text, finished) => finished.value(text),
            }),
        }
    }
}

const COMMA: &[u8] = b", ";

#[derive(Debug)]
pub(super) struct ConstantParts {
    pub(super) policies: Box<[Policy]>,
    pub(super) texts: Box<[Arc<PolicyText>]>,
    /// The value of `RateLimit-Policy`; `None` if the response does not have it.
    pub(super) policy_list: Option<HeaderValue>,
}

/// The texts of a policy, the same in each response.
#[derive(Debug)]
pub(super) struct PolicyText {
    /// The item of `RateLimit-Policy`.
    item: Box<[u8]>,
    /// The item of `RateLimit` up to its first number.
    opening: Box<[u8]>,
    pub(super) limit: HeaderValue,
}

impl ConstantParts {
    pub(super) fn new(
        draft: Option<IetfDraft>,
        policies: impl Iterator<Item = Policy>,
        known: &PolicyTexts,
    ) -> Self {
        let own = policies.map(|policy| (policy.constant(), known.of(&policy)));
        let (policies, texts): (Vec<_>, Vec<_>) = own.unzip();
        Self {
            policies: policies.into(),
            policy_list: draft.and_then(|draft| policy_list(draft, &texts)),
            texts: texts.into(),
        }
    }

    /// The names of these policies that `line`, a value of `RateLimit-Policy`, lists as well.
    pub(super) fn named_in(&self, line: &HeaderValue) -> impl Iterator<Item = &str> {
        let items: Vec<_> = line.as_bytes().split(|byte| *byte == b',').collect();
        let is_in = move |policy: &&Policy| {
            let name = quoted(policy.name());
            let mut items = items.iter().map(|item| item.trim_ascii_start());
            items.any(|item| {
                let rest = item.strip_prefix(name.as_slice());
                matches!(rest, Some([] | [b';' | b' ', ..]))
            })
        };
        self.policies.iter().filter(is_in).map(Policy::name)
    }
}

/// The texts of the policies from which decisions about several limits have some.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyTexts(Option<Arc<HashMap<Policy, Arc<PolicyText>>>>);

impl PolicyTexts {
    #[cfg(feature = "rules")]
    pub(crate) fn new<'a>(policies: impl Iterator<Item = &'a Policy>) -> Self {
        let texts = policies.map(|policy| (policy.clone(), Arc::new(PolicyText::new(policy))));
        Self(Some(Arc::new(texts.collect())))
    }

    fn of(&self, policy: &Policy) -> Arc<PolicyText> {
        let known = self.0.as_ref().and_then(|known| known.get(policy));
        known.map_or_else(|| Arc::new(PolicyText::new(policy)), Arc::clone)
    }
}

impl PolicyText {
    fn new(policy: &Policy) -> Self {
        let opening = [&quoted(policy.name()), b";r=".as_slice()].concat();
        let mut item = TextBuffer::new();
        push_item(policy, &mut item);
        Self {
            item: item.text.as_bytes().into(),
            opening: opening.into_boxed_slice(),
            limit: number_value(policy.limit()),
        }
    }
}

/// The value of `RateLimit-Policy`; `None` without policies, since RFC 9651 has no empty list.
fn policy_list(IetfDraft::Draft11: IetfDraft, policies: &[Arc<PolicyText>]) -> Option<HeaderValue> {
    let (first, others) = policies.split_first()?;
    let mut to = TextBuffer::new();
    to.push(&first.item);
    for policy in others {
        to.push(COMMA);
        to.push(&policy.item);
    }
    let whole = to.field_since(0);
    Some(to.finish().value(whole))
}

/// Writes an item of `RateLimit-Policy`.
fn push_item(policy: &Policy, to: &mut TextBuffer) {
    to.push(&quoted(policy.name()));
    to.push(b";q=");
    to.push_number(policy.limit());
    if let (Some(window), false) = (policy.window(), policy.unit() == Unit::ConcurrentRequests) {
        to.push(b";w=");
        to.push_number(whole_seconds(window).max(1));
    }
    match policy.unit() {
        Unit::Requests => {}
        Unit::ConcurrentRequests => to.push(b";qu=\"concurrent-requests\""),
        Unit::Named(unit) => {
            to.push(b";qu=");
            to.push(&quoted(unit.as_str()));
        }
    }
}

/// A String of RFC 9651, with a `?` for each character that is not printable ASCII.
///
/// The name of a checked quota has no such character. A policy of a user's own limiter may have one,
/// and clients would discard the whole field.
fn quoted(name: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 2);
    text.push(b'"');
    for character in name.chars() {
        match character {
            '"' | '\\' => text.extend([b'\\', character as u8]),
            ' '..='~' => text.push(character as u8),
            _ => text.push(b'?'),
        }
    }
    text.push(b'"');
    text
}

/// Writes the value of `RateLimit`; `None` if the remaining units of no quota are known.
// Inlined into each caller: the texts of one quota then need no loop.
#[inline(always)]
fn status_list<'a>(
    IetfDraft::Draft11: IetfDraft,
    quotas: impl Iterator<Item = (KnownNumbers, &'a Arc<PolicyText>)>,
    to: &mut TextBuffer,
) -> Option<BufferedText> {
    for (numbers, text) in quotas {
        let Some(remaining) = numbers.remaining else {
            continue;
        };
        if to.len() > 0 {
            to.push(COMMA);
        }
        to.push(&text.opening);
        to.push_number(remaining);
        if let Some(seconds) = numbers.seconds {
            to.push(b";t=");
            to.push_number(seconds);
        }
    }
    (to.len() > 0).then(|| to.field_since(0))
}

/// Enough for one quota with an ordinary name, and for every number of the response.
const INLINE_LEN: usize = 64;

/// The texts of one response's fields, written one after another.
///
/// The buffer is on the stack while it is written. A lone text is copied from it; several move to the
/// heap in one piece and share it: at most one allocation for a response.
struct TextBuffer {
    text: SmallBytes<INLINE_LEN>,
    fields: usize,
    /// The last two numbers with a text of their own, and its place: several fields report the same.
    numbers: [(u64, Range<usize>); 2],
}

/// The text of one field, which the finished buffer turns into a value.
enum BufferedText {
    Fixed(&'static HeaderValue),
    Written(Range<usize>),
}

impl TextBuffer {
    #[inline]
    const fn new() -> Self {
        Self {
            text: SmallBytes::new(),
            fields: 0,
            numbers: [(0, 0..0), (0, 0..0)],
        }
    }

    #[inline]
    const fn len(&self) -> usize {
        self.text.len()
    }

    #[inline]
    fn push(&mut self, text: &[u8]) {
        self.text.push(text);
    }

    #[inline]
    fn push_number(&mut self, number: u64) {
        match short(number) {
            Some(text) => self.push(text.as_bytes()),
            None => drop(self.push_digits(number)),
        }
    }

    fn push_digits(&mut self, number: u64) -> Range<usize> {
        let start = self.len();
        digits(number, |digits| self.push(digits));
        let place = start..self.len();
        self.numbers.swap(0, 1);
        self.numbers[0] = (number, place.clone());
        place
    }

    #[inline]
    fn field_since(&mut self, start: usize) -> BufferedText {
        self.fields += 1;
        BufferedText::Written(start..self.len())
    }

    /// Makes a number a field, and writes it unless its text exists.
    #[inline]
    fn number(&mut self, number: u64) -> BufferedText {
        if let Some(value) = short_value(number) {
            return BufferedText::Fixed(value);
        }
        self.fields += 1;
        let known = self.numbers.iter().find(|(known, _)| *known == number);
        let place = known.map(|(_, place)| place.clone());
        BufferedText::Written(place.unwrap_or_else(|| self.push_digits(number)))
    }

    #[inline]
    fn finish(&mut self) -> FinishedTexts<'_> {
        if self.fields > 1 || self.text.is_long() {
            FinishedTexts::Shared(mem::replace(&mut self.text, SmallBytes::new()).into_shared())
        } else {
            FinishedTexts::Lone(self.text.as_bytes())
        }
    }
}

enum FinishedTexts<'a> {
    Lone(&'a [u8]),
    Shared(Bytes),
}

impl FinishedTexts<'_> {
    #[inline]
    fn value(&self, text: BufferedText) -> HeaderValue {
        let value = match (text, self) {
            (BufferedText::Fixed(value), _) => return value.clone(),
            (BufferedText::Written(range), Self::Lone(text)) => {
                HeaderValue::from_bytes(&text[range])
            }
            (BufferedText::Written(range), Self::Shared(text)) => {
                HeaderValue::from_maybe_shared(text.slice(range))
            }
        };
        value.expect(ASCII)
    }
}

const ASCII: &str = "only printable ASCII was written";

/// RFC 9651 Integers have at most 15 digits; one more, and the whole field means nothing.
pub(super) const LARGEST: u64 = 999_999_999_999_999;

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
pub(super) fn short(number: u64) -> Option<&'static str> {
    let n = usize::try_from(number).ok().filter(|n| *n < GROUP)?;
    let zeros = usize::from(n < 100) + usize::from(n < 10);
    Some(&DIGITS[3 * n + zeros..3 * n + 3])
}

/// Calls `write` with the digits of `number`, or of [`LARGEST`] if that is less.
#[inline]
pub(super) fn digits<R>(number: u64, write: impl FnOnce(&[u8]) -> R) -> R {
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
pub(super) fn number_value(number: u64) -> HeaderValue {
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
pub(super) fn parse_number<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Option<u64> {
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
