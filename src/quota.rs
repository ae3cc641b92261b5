//! What is allowed: a number of requests per period, and the algorithm that counts them.

use std::{fmt, str::FromStr, time::Duration};

use crate::error::{ConfigError, ConfigErrorKind};

/// The longest time a full burst may take to refill, about 18 years: it keeps the local table's
/// 61-bit nanoseconds valid for decades of uptime.
pub(crate) const MAX_REFILL_NANOS: u64 = 1 << 59;

/// The shortest time between two units: a million requests a second.
const MIN_INTERVAL_NANOS: u64 = 1_000;

/// A policy name goes into a header of every response.
const MAX_NAME_LEN: usize = 64;

/// What is allowed.
///
/// A quota is `limit` units per `period`; a request costs one unit unless the layer is told
/// otherwise. The default algorithm is a token bucket that holds `limit` units when full.
///
/// Constructors and builders never fail, so that a quota can be a constant; [`check`](Self::check)
/// and whatever takes a quota say what is wrong with one that makes no sense.
///
/// ```
/// use tower_ratelimit::Quota;
///
/// const LOGIN: Quota = Quota::per_minute(5).named("login");
/// // 10 a second in the long run, 20 at once after a pause.
/// const API: Quota = Quota::per_second(10).burst(20);
///
/// assert!(LOGIN.check().is_ok());
/// assert!(API.check().is_ok());
/// assert_eq!("100/minute".parse(), Ok(Quota::per_minute(100)));
/// assert!(Quota::per_second(0).check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Quota {
    limit: u64,
    period: Duration,
    algorithm: Algorithm,
    burst: Option<u64>,
    name: Option<&'static str>,
}

/// How a quota's units are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of `burst` tokens that refills evenly, `limit` tokens per period; also known as
    /// GCRA (the generic cell rate algorithm of ITU-T I.371) and as the leaky bucket as a meter.
    #[default]
    TokenBucket,
}

impl Quota {
    /// `limit` units a second.
    pub const fn per_second(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(1))
    }

    /// `limit` units a minute.
    pub const fn per_minute(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(60))
    }

    /// `limit` units an hour.
    pub const fn per_hour(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(3_600))
    }

    /// `limit` units a day of 24 hours.
    pub const fn per_day(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(86_400))
    }

    /// `limit` units per `period`.
    pub const fn per(limit: u64, period: Duration) -> Self {
        Self {
            limit,
            period,
            algorithm: Algorithm::TokenBucket,
            burst: None,
            name: None,
        }
    }

    /// Counts with a token bucket. This is the default.
    pub const fn token_bucket(mut self) -> Self {
        self.algorithm = Algorithm::TokenBucket;
        self
    }

    /// How many units a key that was idle can take at once. Defaults to the limit.
    ///
    /// The rate stays what it was: `per_second(10).burst(20)` refills 10 tokens a second into a
    /// bucket that holds 20.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// The policy's name in headers, problem documents and metrics. Defaults to `default`.
    ///
    /// 1 to 64 printable ASCII characters.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Units per period.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period that the limit is counted in.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How the units are counted.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The most units that can be taken at once: the burst where one was set, else the limit.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) => burst,
            None => self.limit,
        }
    }

    /// The name that [`named`](Self::named) set.
    #[must_use]
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// Whether the quota makes sense.
    ///
    /// # Errors
    ///
    /// A limit, period or burst of 0; more than a million units a second; a burst that takes more
    /// than 18 years to refill; a name that is empty, longer than 64 bytes or not printable ASCII.
    pub fn check(&self) -> Result<(), ConfigError> {
        use ConfigErrorKind as Kind;
        if self.limit == 0 {
            return Err(ConfigError::new(
                Kind::Limit,
                "a limit of 0 lets nothing pass; it must be at least 1",
            ));
        }
        if self.period.is_zero() {
            return Err(ConfigError::new(
                Kind::Period,
                "a period of 0 is no rate; it must be at least 1 microsecond per unit",
            ));
        }
        if self.burst == Some(0) {
            return Err(ConfigError::new(
                Kind::Burst,
                "a burst of 0 lets nothing pass; it must be at least 1",
            ));
        }
        if let Some(name) = self.name {
            check_name(name)?;
        }
        self.check_span()
    }

    fn check_span(&self) -> Result<(), ConfigError> {
        let interval = self.period.as_nanos() / u128::from(self.limit);
        if interval < u128::from(MIN_INTERVAL_NANOS) {
            return Err(ConfigError::new(
                ConfigErrorKind::Rate,
                format!(
                    "{} in {:?} is more than a million a second, the most that is accepted",
                    self.limit, self.period
                ),
            ));
        }
        let refill = interval.checked_mul(u128::from(self.capacity()));
        if refill.is_none_or(|refill| refill > u128::from(MAX_REFILL_NANOS)) {
            return Err(ConfigError::new(
                ConfigErrorKind::Overflow,
                format!(
                    "a bucket of {} at {} in {:?} takes more than 18 years to refill, the most \
                     that is accepted",
                    self.capacity(),
                    self.limit,
                    self.period
                ),
            ));
        }
        Ok(())
    }

    /// T = ⌊period / limit⌋ in nanoseconds, for a quota that was checked.
    pub(crate) fn interval_nanos(&self) -> u64 {
        let interval = self.period.as_nanos() / u128::from(self.limit.max(1));
        u64::try_from(interval).unwrap_or(u64::MAX)
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), ConfigError> {
    let printable = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if name.is_empty() || name.len() > MAX_NAME_LEN || !printable {
        return Err(ConfigError::new(
            ConfigErrorKind::Name,
            format!(
                "{name:?} is no policy name; accepted are 1 to {MAX_NAME_LEN} printable ASCII \
                 characters"
            ),
        ));
    }
    Ok(())
}

/// The rate, as [`FromStr`] reads it: `100/60s`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit)?;
        let nanos = self.period.as_nanos();
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
    let count = u32::try_from(count).ok()?;
    Some(Quota::per(limit, unit.duration.checked_mul(count)?))
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
