//! Parser of quota texts: tokens, rates, periods, and errors with their position.

use std::{borrow::Cow, cmp::Reverse, fmt, time::Duration};

use super::Quota;
#[cfg(feature = "calendar")]
use super::calendar_quotas;
use crate::error::{ConfigError, ConfigErrorKind};

/// The unread rest of a text.
pub(super) struct Reader<'a> {
    rest: &'a str,
    /// The offset in the text, in bytes.
    read: usize,
}

/// A part of the text without spaces.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// The offset in the text, in bytes.
    start: usize,
}

/// An error in a text.
pub(super) enum Fault<'a> {
    Form,
    TimeUnit(Token<'a>),
    /// An unknown word, and the known ones.
    Unknown(Token<'a>, String),
    /// A repeated word.
    Twice(Token<'a>),
    /// A second algorithm.
    Second(Token<'a>),
    /// A word without its value, and an example with one.
    Alone(Token<'a>, String),
    /// A number that is too large, and the accepted ones.
    TooLarge(Token<'a>, Cow<'static, str>),
}

impl<'a> Fault<'a> {
    /// The error that names the part, its position, and the accepted values.
    pub(super) fn in_text(self, text: &'a str) -> ConfigError {
        let syntax = |message| ConfigError::new(ConfigErrorKind::Syntax, message);
        let at = |token: Token<'a>| TokenPlace(token, text);
        match self {
            Self::Form => syntax(format!(
                "{} is no quota; accepted are a limit and a period, such as \"100/minute\", \
                 \"5/10s\" or \"1000/day\", and words after them, such as \"burst 200\"{}",
                Shortened(text),
                form_remedy(text)
            )),
            Self::TimeUnit(token) => {
                let known = UNITS.map(|unit| unit.names.join(", ")).join(", ");
                let remedy = unit_remedy(token.text);
                syntax(format!(
                    "unknown unit {}; accepted are {known}{remedy}",
                    at(token)
                ))
            }
            Self::Unknown(token, known) => {
                syntax(format!("unknown word {}; accepted are {known}", at(token)))
            }
            Self::Twice(token) => syntax(format!("{} appears twice; accepted is once", at(token))),
            Self::Second(token) => syntax(format!(
                "{} is a second algorithm; accepted is one",
                at(token)
            )),
            Self::Alone(token, example) => syntax(format!(
                "{} needs a value after it; accepted is, for example, {example:?}",
                at(token)
            )),
            Self::TooLarge(token, accepted) => ConfigError::new(
                ConfigErrorKind::Overflow,
                format!("{} is too large; accepted are {accepted}", at(token)),
            ),
        }
    }
}

/// A token and its position in the text.
struct TokenPlace<'a>(Token<'a>, &'a str);

impl fmt::Display for TokenPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(token, text) = self;
        let before = text.get(..token.start).unwrap_or_default();
        let (part, place) = (Shortened(token.text), before.chars().count() + 1);
        write!(f, "{part} at character {place} of {}", Shortened(text))
    }
}

/// The beginning of a text of any length, for an error message.
pub(super) struct Shortened<'a>(pub(super) &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        match text.char_indices().nth(40) {
            Some((end, _)) => write!(f, "{:?}...", &text[..end]),
            None => write!(f, "{text:?}"),
        }
    }
}

/// Parses a text that is a period alone, such as `10s` or `minute`.
pub fn period(text: &str) -> Result<Duration, ConfigError> {
    let mut reader = Reader::new(text);
    let whole = match reader.period() {
        Ok(period) if reader.token().is_none() => Ok(period),
        Ok(_) => Err(Fault::Form),
        Err(fault) => Err(fault),
    };
    whole.map_err(|fault| match fault {
        Fault::Form => ConfigError::new(
            ConfigErrorKind::Syntax,
            format!(
                "{} is no period; accepted is, for example, \"30s\"",
                Shortened(text)
            ),
        ),
        fault => fault.in_text(text),
    })
}

impl Quota {
    /// The rate alone, such as `100/60s`. Stable, because names are made of it.
    #[doc(hidden)]
    pub fn rate_text(&self) -> String {
        match self.calendar() {
            Some(calendar) => format!("{}/{}", self.limit(), calendar.unit_name()),
            None => format!("{}/{}", self.limit(), PeriodText(self.period())),
        }
    }
}

/// A period in the longest unit that divides it.
pub(super) struct PeriodText(pub(super) Duration);

impl fmt::Display for PeriodText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let whole =
            |unit: &&TimeUnit| !unit.coarse && nanos.is_multiple_of(unit.duration.as_nanos());
        match UNITS.iter().find(whole) {
            Some(unit) => write!(f, "{}{}", nanos / unit.duration.as_nanos(), unit.names[0]),
            None => write!(f, "{nanos}ns"),
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            read: 0,
        }
    }

    /// A limit, a slash and a period.
    pub(super) fn rate(&mut self) -> Result<Quota, Fault<'a>> {
        self.skip_spaces();
        let mut limit = self.take_while(|c| c != '/');
        limit.text = limit.text.trim_end();
        let limit = digits(limit)?;
        let slash = self.take_while(|c| c == '/');
        if slash.text != "/" {
            return Err(Fault::Form);
        }
        #[cfg(feature = "calendar")]
        {
            let (rest, read) = (self.rest, self.read);
            let name = self.token().map_or("", |token| token.text);
            if let Some(quota) = calendar_quotas::quota_per(limit, name) {
                return Ok(quota);
            }
            (self.rest, self.read) = (rest, read);
        }
        Ok(Quota::per(limit, self.period()?))
    }

    /// A unit with an optional whole number before it.
    pub(super) fn period(&mut self) -> Result<Duration, Fault<'a>> {
        self.skip_spaces();
        let (from, start) = (self.rest, self.read);
        let count = self.take_while(|c| c.is_ascii_digit());
        let number = match count.text {
            "" => 1,
            _ => digits(count)?,
        };
        let unit = unit(self.token().ok_or(Fault::Form)?)?;
        let nanos = unit.as_nanos() * u128::from(number);
        let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| {
            let text = &from[..self.read - start];
            Fault::TooLarge(Token { text, start }, LARGEST_RATE.into())
        })?;
        Ok(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
    }

    /// The characters up to the next space; empty at the end of the text.
    pub(super) fn token(&mut self) -> Option<Token<'a>> {
        self.skip_spaces();
        Some(self.take_while(|c| !c.is_whitespace())).filter(|token| !token.text.is_empty())
    }

    /// A number of at most `largest`, with or without a sign after it.
    pub(super) fn number(&mut self, sign: &str, largest: u64) -> Result<u64, Fault<'a>> {
        let mut token = self.token().ok_or(Fault::Form)?;
        token.text = token.text.strip_suffix(sign).unwrap_or(token.text);
        let number = digits(token)?;
        let fits = Some(number).filter(|number| *number <= largest);
        fits.ok_or(Fault::TooLarge(token, LARGEST_RATE.into()))
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> Token<'a> {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let start = self.read;
        (self.rest, self.read) = (rest, start + end);
        Token { text, start }
    }
}

fn unit(token: Token<'_>) -> Result<Duration, Fault<'_>> {
    let known = UNITS.iter().find(|unit| unit.names.contains(&token.text));
    // `10/1.5s` is malformed, rather than a rate with the unit `.5s`.
    let is_word = token.text.chars().all(char::is_alphabetic);
    known.map(|unit| unit.duration).ok_or(if is_word {
        Fault::TimeUnit(token)
    } else {
        Fault::Form
    })
}

/// The hint for an unknown unit: the length of a longer one, or a similar unit.
fn unit_remedy(text: &str) -> String {
    let lower = text.to_lowercase();
    match lower.as_str() {
        "w" | "week" | "weeks" => return "; a week is 7d".to_owned(),
        "mo" | "month" | "months" => {
            return "; months differ in length: 30d is the nearest period".to_owned();
        }
        "y" | "year" | "years" => return "; a year is 365d".to_owned(),
        _ => {}
    }
    let names = || UNITS.iter().flat_map(|unit| unit.names).copied();
    let begun = names().find(|name| name.starts_with(&lower));
    let meant = begun.or_else(|| {
        // The number of first letters in common; of several units with as many, the one of the nearest length.
        let alike = |name: &str| {
            let pairs = name.chars().zip(lower.chars());
            pairs.take_while(|(one, other)| one == other).count()
        };
        let difference = |name: &str| name.len().abs_diff(lower.len());
        let is_near = |name: &&str| difference(name) <= 2 && alike(name) * 2 >= name.len();
        names()
            .filter(is_near)
            .max_by_key(|name| (alike(name), Reverse(difference(name))))
    });
    meant.map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

/// The hint for a limit with a noun, as in nginx's `10r/s`, and for several quotas.
fn form_remedy(text: &str) -> String {
    let Some((limit, period)) = text.split_once('/') else {
        return String::new();
    };
    if text.contains(';') {
        return "; several quotas in one text are `QuotaList`".to_owned();
    }
    let number = limit.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &limit[..limit.len() - number.len()];
    let noun = limit[number.len()..].trim();
    let quota = format!("{number}/{period}");
    let is_noun = matches!(noun, "r" | "req" | "reqs" | "request" | "requests");
    if is_noun && quota.parse::<Quota>().is_ok() {
        format!("; did you mean {quota:?}?")
    } else {
        String::new()
    }
}

/// Parses digits only; `u64::from_str` would also accept a sign.
fn digits(token: Token<'_>) -> Result<u64, Fault<'_>> {
    if token.text.is_empty() || !token.text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::Form);
    }
    let number = token.text.parse();
    number.map_err(|_| Fault::TooLarge(token, LARGEST_RATE.into()))
}

const LARGEST_RATE: &str = "up to a million a second and periods of up to 18 years";

struct TimeUnit {
    /// The unit's names; `Display` writes the first one.
    names: &'static [&'static str],
    duration: Duration,
    /// Whether `Display` uses the unit. It writes `60s`, because `1m` may be read as a month.
    coarse: bool,
}

/// All units, from the longest to the shortest.
const UNITS: [TimeUnit; 7] = [
    TimeUnit {
        names: &["d", "day", "days"],
        duration: Duration::from_secs(86_400),
        coarse: true,
    },
    TimeUnit {
        names: &["h", "hour", "hours"],
        duration: Duration::from_secs(3_600),
        coarse: true,
    },
    TimeUnit {
        names: &["m", "min", "minute", "minutes"],
        duration: Duration::from_secs(60),
        coarse: true,
    },
    TimeUnit {
        names: &["s", "sec", "second", "seconds"],
        duration: Duration::from_secs(1),
        coarse: false,
    },
    TimeUnit {
        names: &["ms"],
        duration: Duration::from_millis(1),
        coarse: false,
    },
    TimeUnit {
        names: &["us"],
        duration: Duration::from_micros(1),
        coarse: false,
    },
    TimeUnit {
        names: &["ns"],
        duration: Duration::from_nanos(1),
        coarse: false,
    },
];
