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
/// A text of another form, and every quota that [`Quota::check`] refuses.
impl FromStr for Quota {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let quota = parse_rate(text).ok_or_else(|| {
            ConfigError::new(
                ConfigErrorKind::Syntax,
                format!(
                    "{:?} is no quota; accepted are a limit and a period, such as \"100/minute\", \
                     \"5/10s\" or \"1000/day\"",
                    shortened(text)
                ),
            )
        })?;
        quota.check()?;
        Ok(quota)
    }
}

/// What an error message repeats of a text that may be of any length.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(40).map_or(text.len(), |(i, _)| i);
    &text[..end]
}

fn parse_rate(text: &str) -> Option<Quota> {
    let (limit, period) = text.split_once('/')?;
    let limit = parse_digits(limit.trim())?;
    let period = period.trim();
    let unit_at = period
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(period.len());
    let (count, unit) = period.split_at(unit_at);
    let count = if count.is_empty() {
        1
    } else {
        parse_digits(count)?
    };
    let unit = unit.trim_start();
    let unit = UNITS.iter().find(|known| known.names.contains(&unit))?;
    let nanos = unit.duration.as_nanos() * u128::from(count);
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let period = Duration::new(seconds, (nanos % 1_000_000_000) as u32);
    Some(Quota::per(limit, period))
}

/// `u64::from_str` would also take a sign.
fn parse_digits(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
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
