//! Quotas as text: a rate, and words for the other settings. Tables use the same words.

use std::{fmt, str::FromStr, time::Duration};

use super::{
    Algorithm, Quota,
    calendar::Calendar,
    parse::{Fault, PeriodText, Reader, Token},
    time_of_day::TimeOfDay,
    unit_name::UnitName,
    varying,
};
use crate::error::{ConfigError, ConfigErrorKind};

/// The text that [`FromStr`] parses: the rate, then the words for all settings that differ from a
/// plain token bucket, such as `100/60s burst 200`. Without the name, since a name may contain spaces
/// and any signs.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.rate_text(), Words::of(self))
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
        let (rate, words) = Words::with_rate(text)?;
        let quota = words.applied_to(rate)?;
        quota.check()?;
        Ok(quota)
    }
}

/// The settings of a text or a table. Both fill in the same fields, so that both mean the same.
#[derive(Default)]
pub(super) struct Words {
    pub(super) algorithm: Option<&'static str>,
    pub(super) burst: Option<u64>,
    pub(super) refill_every: Option<Duration>,
    pub(super) queue: Option<u64>,
    pub(super) slices: Option<u32>,
    pub(super) soft: Option<u32>,
    pub(super) debt: Option<u64>,
    pub(super) unit: Option<&'static str>,
    pub(super) zone: Option<String>,
    pub(super) starting_on: Option<u32>,
    pub(super) varying: Option<Vec<(TimeOfDay, u64)>>,
}

/// The algorithms' names in texts and tables.
const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
];

/// All words, in the order of error messages.
const ACCEPTED: &str = "burst, refill_every, leaky_bucket, queue, fixed_window, \
                                   sliding_window, slices, sliding_log, token_bucket, soft, debt, \
                                   unit, in, starting_on, varying";

/// The accepted bursts and queues in words, because the largest depends on the rate.
const LARGEST: &str = "as many as come back within 18 years";

impl Words {
    pub(super) fn with_rate(text: &str) -> Result<(Quota, Self), ConfigError> {
        let mut reader = Reader::new(text);
        let read = reader
            .rate()
            .and_then(|rate| Ok((rate, Self::read(&mut reader)?)));
        read.map_err(|fault| fault.in_text(text))
    }

    fn read<'a>(reader: &mut Reader<'a>) -> Result<Self, Fault<'a>> {
        let mut words = Self::default();
        while let Some(token) = reader.token() {
            let twice = || Fault::Twice(token);
            match token.text.replace('-', "_").as_str() {
                "burst" => {
                    let burst = reader.number(token.word("burst 20", LARGEST))?;
                    put(&mut words.burst, burst, twice)?;
                }
                "queue" => {
                    let queue = reader.number(token.word("queue 20", LARGEST))?;
                    put(&mut words.queue, queue, twice)?;
                }
                "slices" => {
                    let slices = reader.small_number(token.word("slices 6", "1 to 1000"))?;
                    put(&mut words.slices, slices, twice)?;
                }
                "refill_every" => {
                    let step =
                        reader.step(token.word("refill_every 30s", "steps of up to 18 years"))?;
                    put(&mut words.refill_every, step, twice)?;
                }
                "soft" | "debt" => words.read_excess(reader, token)?,
                "unit" => {
                    let unit = reader.name(token.word("unit tokens", ""))?;
                    let unit = UnitName::of(unit).map_err(Fault::Value)?;
                    put(&mut words.unit, unit.as_str(), twice)?;
                }
                "in" | "starting_on" | "varying" => words.read_time(reader, token)?,
                name => {
                    let name = algorithm(name).ok_or(Fault::Unknown(token, ACCEPTED))?;
                    put(&mut words.algorithm, name, || Fault::Second(token))?;
                }
            }
        }
        Ok(words)
    }

    /// Reads a word about units beyond the capacity.
    fn read_excess<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        token: Token<'a>,
    ) -> Result<(), Fault<'a>> {
        let twice = || Fault::Twice(token);
        if token.text == "soft" {
            let percent = reader.percent(token.word("soft 10%", "0% to 1000%"))?;
            return put(&mut self.soft, percent, twice);
        }
        let units = reader.number(token.word("debt 100", LARGEST))?;
        put(&mut self.debt, units, twice)
    }

    /// Reads a word of quotas that follow the calendar or vary by the time of day.
    fn read_time<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        token: Token<'a>,
    ) -> Result<(), Fault<'a>> {
        let twice = || Fault::Twice(token);
        if token.text == "in" {
            let zone = reader.name(token.word("in Europe/Berlin", ""))?;
            return put(&mut self.zone, zone.to_owned(), twice);
        }
        if token.text == "varying" {
            let limits = reader.day_limits(token.word("varying 00:00=10/08:00=20", ""))?;
            return put(&mut self.varying, limits, twice);
        }
        let day = reader.small_number(token.word("starting_on 15", "1 to 28"))?;
        put(&mut self.starting_on, day, twice)
    }

    /// The words of all settings of a quota except its rate and name.
    pub(super) fn of(quota: &Quota) -> Self {
        let (algorithm, queue) = match quota.algorithm() {
            Algorithm::TokenBucket => (None, None),
            Algorithm::LeakyBucket { queue } => (Some("leaky_bucket"), Some(queue)),
            // The only algorithm of calendar quotas.
            Algorithm::FixedWindow if quota.calendar().is_some() => (None, None),
            Algorithm::FixedWindow => (Some("fixed_window"), None),
            Algorithm::SlidingWindow => (Some("sliding_window"), None),
            Algorithm::SlidingLog => (Some("sliding_log"), None),
        };
        // Also that of a limit that varies.
        let calendar = quota.calendar;
        Self {
            algorithm,
            burst: quota.burst_set(),
            refill_every: quota.refill_step(),
            queue,
            slices: quota.slices_set(),
            soft: Some(quota.soft_percent()).filter(|percent| *percent > 0),
            debt: Some(quota.debt_units()).filter(|units| *units > 0),
            unit: quota.unit_set(),
            zone: calendar.and_then(Calendar::zone_set).map(str::to_owned),
            starting_on: calendar.and_then(Calendar::starting_on),
            varying: quota.varying_limits().map(<[_]>::to_vec),
        }
    }

    /// The quota of this rate and these words, before [`Quota::check`].
    pub(super) fn applied_to(self, rate: Quota) -> Result<Quota, ConfigError> {
        let in_civil_time =
            |quota: Quota| quota.in_civil_time(self.zone.as_deref(), self.starting_on);
        let varies = self.varying.is_some();
        // The algorithm is set later, so that another one than a fixed window is an error.
        let rate = if varies { rate } else { in_civil_time(rate)? };
        let mut quota = match (self.algorithm, self.queue) {
            (Some("leaky_bucket"), Some(queue)) => rate.leaky_bucket(queue),
            (Some("leaky_bucket"), None) => {
                return Err(queue("a leaky bucket needs one, such as \"queue 20\""));
            }
            (_, Some(_)) => return Err(queue("only a leaky bucket has one")),
            (Some("fixed_window"), None) => rate.fixed_window(),
            (Some("sliding_window"), None) => rate.sliding_window(),
            (Some("sliding_log"), None) => rate.sliding_log(),
            (Some(_), None) => rate.token_bucket(),
            (None, None) => rate,
        };
        if let Some(burst) = self.burst {
            quota = quota.burst(burst);
        }
        if let Some(step) = self.refill_every {
            quota = quota.refill_every(step);
        }
        if let Some(slices) = self.slices {
            quota = quota.slices(slices);
        }
        quota = quota.soft(self.soft.unwrap_or(0));
        quota = quota.debt(self.debt.unwrap_or(0));
        if let Some(unit) = self.unit {
            quota = quota.unit(unit);
        }
        match &self.varying {
            Some(limits) => in_civil_time(varying::of_text(quota, limits)?),
            None => Ok(quota),
        }
    }
}

/// All words, each after a space.
impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(algorithm) = self.algorithm {
            write!(f, " {algorithm}")?;
        }
        let numbers = [
            ("burst", self.burst),
            ("queue", self.queue),
            ("slices", self.slices.map(u64::from)),
        ];
        for (word, number) in numbers {
            if let Some(number) = number {
                write!(f, " {word} {number}")?;
            }
        }
        if let Some(step) = self.refill_every {
            write!(f, " refill_every {}", PeriodText(step))?;
        }
        if let Some(day) = self.starting_on {
            write!(f, " starting_on {day}")?;
        }
        if let Some(percent) = self.soft {
            write!(f, " soft {percent}%")?;
        }
        if let Some(units) = self.debt {
            write!(f, " debt {units}")?;
        }
        if let Some(unit) = self.unit {
            write!(f, " unit {unit}")?;
        }
        if let Some(limits) = &self.varying {
            write!(f, " varying {}", varying::text(limits))?;
        }
        match &self.zone {
            Some(zone) => write!(f, " in {zone}"),
            None => Ok(()),
        }
    }
}

fn algorithm(name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    ALGORITHMS.into_iter().find(|known| *known == name)
}

#[cfg(feature = "serde")]
pub(super) fn algorithm_named(name: &str) -> Result<&'static str, ConfigError> {
    algorithm(name).ok_or_else(|| {
        ConfigError::new(
            ConfigErrorKind::Syntax,
            format!(
                "unknown algorithm {}; accepted are {}",
                super::parse::Shortened(name),
                ALGORITHMS.join(", ")
            ),
        )
    })
}

fn put<T, E>(place: &mut Option<T>, value: T, twice: impl FnOnce() -> E) -> Result<(), E> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice()),
    }
}

fn queue(problem: &str) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Queue, format!("queue: {problem}"))
}
