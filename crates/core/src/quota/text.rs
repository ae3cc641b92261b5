//! Quotas as texts: the settings, one row for each, which texts, tables and rule files read; the parser, with the
//! positions of errors; and the text of a quota.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap, fmt, str::FromStr, time::Duration};

#[cfg(feature = "calendar")]
use super::calendar_quotas;
use super::{
    Algorithm, OwnedQuota, Quota, UnitName,
    calendar::{self, Calendar},
    quota::ALGORITHMS,
    validate::refuse,
    varying,
};
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
    fn in_text(self, text: &'a str) -> ConfigError {
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

/// The text that [`FromStr`] parses: the rate, then the words for all settings that differ from a
/// plain token bucket, such as `100/60s burst 200`. Without the name, since a name may contain spaces
/// and any signs.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rate_text())?;
        for setting in in_texts() {
            if let Some(value) = (setting.get)(self) {
                let word = setting.word;
                let space = if word.is_empty() { "" } else { " " };
                write!(f, "{space}{word} {value}{}", setting.sign())?;
            }
        }
        Ok(())
    }
}

/// Reads a rate, such as `100/minute`, `5/10s` or `1 / 2 hours`, and words after it:
/// `100/minute burst 200 soft 10%`.
///
/// A rate is a limit, a slash, and a period, which is a unit with an optional whole number before
/// it. Units are `ns`, `us`, `ms`, `s`/`sec`/`second`, `m`/`min`/`minute`, `h`/`hour` and `d`/`day`,
/// the words also in the plural.
///
/// | words | mean | stand with |
/// |---|---|---|
/// | none, or `token_bucket` | [`token_bucket`](Quota::token_bucket) | |
/// | `burst 20` | [`burst`](Quota::burst) | a token bucket |
/// | `refill_every 30s` | [`refill_every`](Quota::refill_every); a period as above | a token bucket |
/// | `leaky_bucket queue 20` | [`leaky_bucket`](Quota::leaky_bucket) | |
/// | `fixed_window` | [`fixed_window`](Quota::fixed_window) | |
/// | `sliding_window` | [`sliding_window`](Quota::sliding_window) | |
/// | `slices 6` | [`slices`](Quota::slices) | a sliding window |
/// | `sliding_log` | [`sliding_log`](Quota::sliding_log) | |
/// | `debt 100` | [`debt`](Quota::debt) | all but a leaky bucket |
/// | `unit tokens` | [`unit`](Quota::unit) | all |
/// | `soft 10%` | [`soft`](Quota::soft); the sign may be left out | all |
/// | `varying 00:00=10/08:00=20` | [`varying`](Quota::varying); the largest is the limit of the rate | a fixed or sliding window |
/// | `in Europe/Berlin` | `in_zone`, by the feature `calendar` | a rate per day, week, month or year, or `varying` |
/// | `starting_on 15` | `starting_on`, by the feature `calendar` | a rate per month |
///
/// With the feature `calendar`, `week`, `month` and `year` without a number before them are those of the
/// calendar.
///
/// Words come in any order, each at most once, in lower case; `fixed-window` is `fixed_window`.
///
/// ```
/// use tower_ratelimit::Quota;
///
/// # fn main() -> Result<(), tower_ratelimit::ConfigError> {
/// let quota: Quota = "100/minute burst 200 soft 10%".parse()?;
/// assert_eq!(quota, Quota::per_minute(100).burst(200).soft(10));
/// assert_eq!(quota.to_string(), "100/60s burst 200 soft 10%");
///
/// let error = "100/minute brust 200".parse::<Quota>().unwrap_err();
/// assert!(error.to_string().starts_with("unknown word \"brust\" at character 12"));
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A malformed text, or one with an unknown unit, an unknown word or a repeated word
/// ([`ConfigErrorKind::Syntax`]); a number that is too large ([`ConfigErrorKind::Overflow`]); a queue
/// without a leaky bucket, or the reverse ([`ConfigErrorKind::Queue`]); and every quota that
/// [`Quota::check`] refuses. Errors in the text have their position, counted in characters from 1.
impl FromStr for Quota {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (rate, values) = read(text)?;
        let quota = applied(&values, rate)?;
        quota.check()?;
        Ok(quota)
    }
}

const ALGORITHM: &str = "algorithm";
const QUEUE: &str = "queue";

/// The values of settings, by their fields.
pub(crate) type Values = BTreeMap<&'static str, String>;

impl OwnedQuota {
    /// The quota of a table: a rate, which may have words after it, and fields.
    #[doc(hidden)]
    pub fn of_table(
        rate: &str,
        name: Option<String>,
        mut fields: Values,
    ) -> Result<Self, ConfigError> {
        let (rate, words) = read(rate)?;
        for (field, value) in words {
            if fields.insert(field, value).is_some() {
                return refuse(
                    ConfigErrorKind::Syntax,
                    format!("{field} appears twice, in the rate and as a field; accepted is once"),
                );
            }
        }
        let quota = applied(&fields, rate)?;
        let owned = match name {
            Some(name) => quota.named_owned(name),
            None => quota.into(),
        };
        owned.check()?;
        Ok(owned)
    }
}

/// The rate of a text, and its words.
fn read(text: &str) -> Result<(Quota, Values), ConfigError> {
    let mut reader = Reader::new(text);
    let rate = reader.rate();
    let read = rate.and_then(|rate| Ok((rate, words(&mut reader)?)));
    read.map_err(|fault| fault.in_text(text))
}

fn words<'a>(reader: &mut Reader<'a>) -> Result<Values, Fault<'a>> {
    let mut values = Values::new();
    let mut last: Option<(Token<'a>, &Setting)> = None;
    while let Some(token) = reader.token() {
        let word = token.text.replace('-', "_");
        if algorithm(&word).is_some() {
            if values.insert(ALGORITHM, word).is_some() {
                return Err(Fault::Second(token));
            }
            continue;
        }
        let setting = SETTINGS.iter().find(|setting| setting.word == word);
        let Some(setting) = setting else {
            // `varying 00:00 = 10`: its value ends at the space.
            let is_half = |setting: &Setting| {
                setting.example.contains('=') && !values[setting.field].contains('=')
            };
            return Err(match last.filter(|(_, setting)| is_half(setting)) {
                Some((word, setting)) => setting.alone(word),
                None => Fault::Unknown(token, all_words()),
            });
        };
        let value = value(reader, token, setting)?;
        if values.insert(setting.field, value).is_some() {
            return Err(Fault::Twice(token));
        }
        last = Some((token, setting));
    }
    Ok(values)
}

/// All words, for error messages.
fn all_words() -> String {
    let words = SETTINGS.iter().map(|setting| setting.word);
    let words = words.filter(|word| !word.is_empty());
    let words = words.chain(ALGORITHMS.iter().map(|(name, _)| *name));
    words.collect::<Vec<_>>().join(", ")
}

/// The value after a word.
fn value<'a>(
    reader: &mut Reader<'a>,
    word: Token<'a>,
    setting: &Setting,
) -> Result<String, Fault<'a>> {
    let value = match setting.accepts {
        Accepts::Number(_, most) => {
            // The check of the quota refuses other numbers, by the kind of the setting.
            let largest = if most < MAX_NUMBER {
                u32::MAX.into()
            } else {
                u64::MAX
            };
            let number = reader.number(setting.sign(), largest);
            number.map(|number| number.to_string())
        }
        Accepts::Period => {
            let period = reader.period();
            period.map(|period| PeriodText(period).to_string())
        }
        Accepts::Text | Accepts::Algorithm => {
            let token = reader.token().ok_or(Fault::Form);
            token.map(|token| token.text.to_owned())
        }
    };
    value.map_err(|fault| match fault {
        Fault::Form => setting.alone(word),
        Fault::TooLarge(token, _) => Fault::TooLarge(token, setting.accepted()),
        other => other,
    })
}

/// The quota of this rate with these values, before [`Quota::check`].
fn applied(values: &Values, rate: Quota) -> Result<Quota, ConfigError> {
    let mut quota = rate;
    // Civil time sets a fixed window; with another algorithm it is an error. So the algorithm is set once more.
    let again = |setting: &&Setting| matches!(setting.field, ALGORITHM | QUEUE);
    for setting in in_texts().chain(in_texts().filter(again)) {
        if let Some(value) = values.get(setting.field) {
            quota = (setting.set)(quota, value).map_err(|error| match error.kind() {
                ConfigErrorKind::Overflow => {
                    let (field, accepted) = (setting.field, setting.accepted());
                    ConfigError::new(
                        error.kind(),
                        format!("{field}: {error}; accepted are {accepted}"),
                    )
                }
                _ => error,
            })?;
        }
    }
    let is_queue = matches!(quota.algorithm(), Algorithm::LeakyBucket { .. });
    if is_queue && !values.contains_key(QUEUE) {
        let message = "queue: a leaky bucket needs one, such as \"queue 20\"";
        return refuse(ConfigErrorKind::Queue, message);
    }
    Ok(quota)
}

/// The largest number that all formats, and the JavaScript of editors, represent exactly.
pub const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A setting of a quota other than its rate and its name.
#[derive(Debug)]
pub struct Setting {
    /// Its field in tables.
    pub field: &'static str,
    /// Its word in texts. The algorithms have none: their names are words.
    pub(super) word: &'static str,
    pub accepts: Accepts,
    pub example: &'static str,
    pub about: &'static str,
    /// The kind of errors about it.
    pub fault: ConfigErrorKind,
    /// `None` for what a quota is without the setting.
    pub(super) get: fn(&Quota) -> Option<String>,
    pub(super) set: fn(Quota, &str) -> Result<Quota, ConfigError>,
}

/// The values of a setting.
#[derive(Debug)]
pub enum Accepts {
    /// Numbers from the first to the second.
    Number(u64, u64),
    Period,
    Text,
    /// The name of an algorithm.
    Algorithm,
}

/// All settings, in the order of tables.
pub static SETTINGS: [Setting; 11] = [
    Setting {
        field: "algorithm",
        word: "",
        accepts: Accepts::Algorithm,
        example: "token_bucket",
        about: "How it counts. Default: token_bucket.",
        fault: ConfigErrorKind::Calendar,
        get: |quota| match quota.algorithm() {
            Algorithm::TokenBucket => None,
            // The only algorithm of calendar quotas.
            Algorithm::FixedWindow if quota.calendar().is_some() => None,
            _ => Some(quota.algorithm_name().to_owned()),
        },
        set: |quota, name| quota.counted_by(name),
    },
    Setting {
        field: "burst",
        word: "burst",
        accepts: Accepts::Number(1, MAX_NUMBER),
        example: "20",
        about: "How much an idle key can take at once. Default: the limit.",
        fault: ConfigErrorKind::Burst,
        get: |quota| text(quota.burst_set()),
        set: |quota, units| Ok(quota.burst(number(units)?)),
    },
    Setting {
        field: "refill_every",
        word: "refill_every",
        accepts: Accepts::Period,
        example: "30s",
        about: "The step in which tokens come. Default: evenly.",
        fault: ConfigErrorKind::RefillStep,
        get: |quota| text(quota.refill_step().map(PeriodText)),
        set: |quota, step| {
            let step = period(step);
            let named = |error| {
                ConfigError::new(
                    ConfigErrorKind::RefillStep,
                    format!("refill_every: {error}"),
                )
            };
            Ok(quota.refill_every(step.map_err(named)?))
        },
    },
    Setting {
        field: "queue",
        word: "queue",
        accepts: Accepts::Number(0, MAX_NUMBER),
        example: "20",
        about: "How many may wait in a leaky bucket.",
        fault: ConfigErrorKind::Queue,
        get: |quota| match quota.algorithm() {
            Algorithm::LeakyBucket { queue } => text(Some(queue)),
            _ => None,
        },
        set: |quota, units| match quota.algorithm() {
            Algorithm::LeakyBucket { .. } => Ok(quota.leaky_bucket(number(units)?)),
            _ => refuse(ConfigErrorKind::Queue, "queue: only a leaky bucket has one"),
        },
    },
    Setting {
        field: "slices",
        word: "slices",
        accepts: Accepts::Number(1, 1_000),
        example: "6",
        about: "Into how many slices a sliding window is cut. Default: 1.",
        fault: ConfigErrorKind::Slices,
        get: |quota| text(quota.slices_set()),
        set: |quota, slices| Ok(quota.slices(number(slices)?)),
    },
    Setting {
        field: "soft",
        word: "soft",
        accepts: Accepts::Number(0, 1_000),
        example: "10%",
        about: "How many percent more pass than the limit says. Default: 0.",
        fault: ConfigErrorKind::Soft,
        get: |quota| text(Some(quota.soft_percent()).filter(|percent| *percent > 0)),
        set: |quota, percent| Ok(quota.soft(number(percent)?)),
    },
    Setting {
        field: "debt",
        word: "debt",
        accepts: Accepts::Number(0, MAX_NUMBER),
        example: "100",
        about: "How many units beyond its capacity a key may owe, for units that were used before they were charged. Default: 0, and with `counts` as many as it holds at once.",
        fault: ConfigErrorKind::Debt,
        get: |quota| text(Some(quota.debt_units()).filter(|units| *units > 0)),
        set: |quota, units| Ok(quota.debt(number(units)?)),
    },
    Setting {
        field: "unit",
        word: "unit",
        accepts: Accepts::Text,
        example: "tokens",
        about: "The unit that clients see, as `qu` of `RateLimit-Policy`. Default: none, which clients read as requests.",
        fault: ConfigErrorKind::Unit,
        get: |quota| text(quota.unit_set()),
        set: |quota, unit| Ok(quota.unit(UnitName::of(unit)?.as_str())),
    },
    Setting {
        field: "zone",
        word: "in",
        accepts: Accepts::Text,
        example: "Europe/Berlin",
        about: "The time zone of a quota per day, week, month or year, or of the times in `varying`. Default: UTC.",
        fault: ConfigErrorKind::Zone,
        get: |quota| text(quota.calendar.and_then(Calendar::zone_set)),
        set: |quota, zone| quota.in_civil_time(Some(zone), None),
    },
    Setting {
        field: "starting_on",
        word: "starting_on",
        accepts: Accepts::Number(1, 28),
        example: "15",
        about: "The day on which months of a quota per month begin. Default: 1.",
        fault: ConfigErrorKind::Calendar,
        get: |quota| text(quota.calendar.and_then(Calendar::starting_on)),
        set: |quota, day| quota.in_civil_time(None, Some(number(day)?)),
    },
    Setting {
        field: "varying",
        word: "varying",
        accepts: Accepts::Text,
        example: "00:00=10/08:00=20",
        about: "Limits of a window by the time of day, in UTC or in `zone`; the largest is the limit of the rate. Default: one limit.",
        fault: ConfigErrorKind::Varying,
        get: |quota| quota.varying_limits().map(varying::text),
        set: |quota, limits| varying::of_text(quota, limits),
    },
];

/// The places of all settings in the order in which a text has them and a quota takes them: the algorithm before its
/// numbers, and limits vary before they do so in a zone.
const IN_TEXTS: [usize; SETTINGS.len()] = [0, 1, 3, 4, 2, 9, 5, 6, 7, 10, 8];

fn in_texts() -> impl Iterator<Item = &'static Setting> {
    IN_TEXTS.iter().map(|at| &SETTINGS[*at])
}

impl Setting {
    #[cfg(feature = "serde")]
    pub(super) const fn is_number(&self) -> bool {
        matches!(self.accepts, Accepts::Number(..))
    }

    /// The sign after a number in texts.
    fn sign(&self) -> &'static str {
        if self.example.ends_with('%') { "%" } else { "" }
    }

    /// The accepted values in words.
    /// The fault of its word without a value.
    pub(super) fn alone<'a>(&self, word: Token<'a>) -> Fault<'a> {
        Fault::Alone(word, format!("{} {}", self.word, self.example))
    }

    pub(super) fn accepted(&self) -> Cow<'static, str> {
        match self.accepts {
            Accepts::Number(least, most) if most < MAX_NUMBER => {
                let sign = self.sign();
                format!("{least}{sign} to {most}{sign}").into()
            }
            // The largest depends on the rate.
            Accepts::Number(..) => "as many as come back within 18 years".into(),
            _ => "steps of up to 18 years".into(),
        }
    }
}

impl Quota {
    /// The quota with the algorithm of this name; a leaky bucket has no queue yet.
    fn counted_by(mut self, name: &str) -> Result<Self, ConfigError> {
        let Some((_, algorithm)) = algorithm(name) else {
            let known = ALGORITHMS.map(|(known, _)| known).join(", ");
            let message = format!(
                "unknown algorithm {}; accepted are {known}",
                Shortened(name)
            );
            return refuse(ConfigErrorKind::Syntax, message);
        };
        self.algorithm = *algorithm;
        Ok(self)
    }

    /// The quota in this zone and from this day on, if they are set.
    #[doc(hidden)]
    pub fn in_civil_time(
        self,
        zone: Option<&str>,
        starting_on: Option<u32>,
    ) -> Result<Self, ConfigError> {
        #[cfg(feature = "calendar")]
        {
            let quota = zone.map_or(Ok(self), |zone| self.try_in_zone(zone))?;
            // A larger number is no day of a month either.
            let day = starting_on.map(|day| u8::try_from(day).unwrap_or(u8::MAX));
            Ok(day.map_or(quota, |day| quota.starting_on(day)))
        }
        #[cfg(not(feature = "calendar"))]
        match (zone, starting_on) {
            (None, None) => Ok(self),
            _ => refuse(
                ConfigErrorKind::Calendar,
                "this build follows no calendar; a zone or a first day needs the feature `calendar`",
            ),
        }
    }
}

pub(super) fn algorithm(name: &str) -> Option<&'static (&'static str, Algorithm)> {
    let name = name.replace('-', "_");
    ALGORITHMS.iter().find(|(known, _)| *known == name)
}

fn text(value: Option<impl fmt::Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn number<N: FromStr>(text: &str) -> Result<N, ConfigError> {
    let number = calendar::number(text);
    number.map_or_else(
        || {
            refuse(
                ConfigErrorKind::Overflow,
                format!("{} is too large", Shortened(text)),
            )
        },
        Ok,
    )
}
