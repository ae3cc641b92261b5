//! Quotas as text: a rate, and words for the other settings. Tables use the same words.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::{
    Algorithm, OwnedQuota, Quota,
    parse::{Fault, PeriodText, Reader, Token},
    settings::{Accepts, MAX_NUMBER, SETTINGS, Setting, algorithm, in_texts},
    validate::refuse,
    value::ALGORITHMS,
};
use crate::error::{ConfigError, ConfigErrorKind};

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
