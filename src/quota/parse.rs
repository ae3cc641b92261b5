//! Rates as text: `100/minute`.

use std::{fmt, str::FromStr, time::Duration};

use super::Quota;
use crate::error::{ConfigError, ConfigErrorKind};

/// The rate, as [`FromStr`] reads it: `100/60s`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit())?;
        let nanos = self.period().as_nanos();
        let (count, unit) = UNITS
            .iter()
            .filter(|unit| !unit.coarse)
            .find_map(|unit| {
                let size = unit.duration.as_nanos();
                nanos
                    .is_multiple_of(size)
                    .then(|| (nanos / size, unit.names[0]))
            })
            .unwrap_or((nanos, "ns"));
        write!(f, "{count}{unit}")
    }
}

/// Reads a rate such as `100/minute`, `5/10s` or `1 / 2 hours`: a limit, a slash, and a period,
/// which is a unit with an optional whole number before it.
///
/// Units are `ns`, `us`, `ms`, `s`/`sec`/`second`, `m`/`min`/`minute`, `h`/`hour` and `d`/`day`,
/// the words also in the plural.
///
/// # Errors
///
/// A text of another form or with an unknown unit ([`ConfigErrorKind::Syntax`]), a number that is
/// too large ([`ConfigErrorKind::Overflow`]), and every quota that [`Quota::check`] refuses.
impl FromStr for Quota {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let quota = parse_rate(text).map_err(|fault| fault.in_text(text))?;
        quota.check()?;
        Ok(quota)
    }
}

/// What is wrong with a text that is no rate.
enum Fault<'a> {
    Form,
    Unit(&'a str),
    TooLarge(&'a str),
}

impl Fault<'_> {
    fn in_text(self, text: &str) -> ConfigError {
        let text = Shortened(text);
        match self {
            Self::Form => ConfigError::new(
                ConfigErrorKind::Syntax,
                format!(
                    "{text} is no quota; accepted are a limit and a period, such as \
                     \"100/minute\", \"5/10s\" or \"1000/day\""
                ),
            ),
            Self::Unit(unit) => ConfigError::new(
                ConfigErrorKind::Syntax,
                format!(
                    "unknown unit {} in {text}; accepted are {}",
                    Shortened(unit),
                    UNITS.map(|unit| unit.names.join(", ")).join(", ")
                ),
            ),
            Self::TooLarge(number) => ConfigError::new(
                ConfigErrorKind::Overflow,
                format!(
                    "{} in {text} is too large; accepted are up to a million a second and periods \
                     of up to 18 years",
                    Shortened(number)
                ),
            ),
        }
    }
}

/// What an error message repeats of a text that may be of any length.
struct Shortened<'a>(&'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        match text.char_indices().nth(40) {
            Some((end, _)) => write!(f, "{:?}...", &text[..end]),
            None => write!(f, "{text:?}"),
        }
    }
}

/// A period such as `10s` or `minute`.
#[cfg(feature = "serde")]
pub(super) fn period(text: &str) -> Result<Duration, ConfigError> {
    parse_period(text.trim()).map_err(|fault| fault.in_text(text))
}

/// A period as [`period`] reads it.
#[cfg(feature = "serde")]
pub(super) fn period_text(period: Duration) -> String {
    Quota::per(1, period).to_string().split_off(2)
}

fn parse_rate(text: &str) -> Result<Quota, Fault<'_>> {
    let (limit, period) = text.split_once('/').ok_or(Fault::Form)?;
    let limit = parse_digits(limit.trim())?;
    Ok(Quota::per(limit, parse_period(period.trim())?))
}

fn parse_period(text: &str) -> Result<Duration, Fault<'_>> {
    let is_unit = |c: char| !c.is_ascii_digit();
    let (count, unit) = text.split_at(text.find(is_unit).unwrap_or(text.len()));
    let count = if count.is_empty() {
        1
    } else {
        parse_digits(count)?
    };
    let unit = parse_unit(unit.trim_start())?;
    let nanos = unit.as_nanos() * u128::from(count);
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| Fault::TooLarge(text))?;
    Ok(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

fn parse_unit(text: &str) -> Result<Duration, Fault<'_>> {
    let known = UNITS.iter().find(|unit| unit.names.contains(&text));
    // `10/1.5s` has no unit `.5s`: it is of another form.
    let is_word = !text.is_empty() && text.chars().all(char::is_alphabetic);
    known.map(|unit| unit.duration).ok_or(if is_word {
        Fault::Unit(text)
    } else {
        Fault::Form
    })
}

/// `u64::from_str` would also take a sign.
fn parse_digits(text: &str) -> Result<u64, Fault<'_>> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::Form);
    }
    text.parse().map_err(|_| Fault::TooLarge(text))
}

struct Unit {
    /// The first one is what `Display` writes.
    names: &'static [&'static str],
    duration: Duration,
    /// Left out by `Display`, which says `60s` where a reader may take `1m` for a month.
    coarse: bool,
}

/// From the longest to the shortest.
const UNITS: [Unit; 7] = [
    Unit {
        names: &["d", "day", "days"],
        duration: Duration::from_secs(86_400),
        coarse: true,
    },
    Unit {
        names: &["h", "hour", "hours"],
        duration: Duration::from_secs(3_600),
        coarse: true,
    },
    Unit {
        names: &["m", "min", "minute", "minutes"],
        duration: Duration::from_secs(60),
        coarse: true,
    },
    Unit {
        names: &["s", "sec", "second", "seconds"],
        duration: Duration::from_secs(1),
        coarse: false,
    },
    Unit {
        names: &["ms"],
        duration: Duration::from_millis(1),
        coarse: false,
    },
    Unit {
        names: &["us"],
        duration: Duration::from_micros(1),
        coarse: false,
    },
    Unit {
        names: &["ns"],
        duration: Duration::from_nanos(1),
        coarse: false,
    },
];
