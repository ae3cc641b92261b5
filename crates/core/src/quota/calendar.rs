//! Civil time: `Calendar`, the windows that are days, weeks, months or years of a zone, and `TimeOfDay`.

use std::{fmt, str::FromStr, time::Duration};

use crate::error::{ConfigError, ConfigErrorKind};

/// The zone of calendar quotas without another one.
const UTC: &str = "UTC";

const DAY: u64 = 86_400;

/// The windows of a calendar quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(hidden)]
pub struct Calendar {
    pub(crate) unit: CalendarUnit,
    /// The day of the month that `Quota::starting_on` set, unless it is the first.
    pub(super) starting_on: Option<u8>,
    pub(crate) zone: &'static str,
}

/// The unit of time that a window is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(hidden)]
pub enum CalendarUnit {
    Day,
    Week,
    Month,
    Year,
}

impl CalendarUnit {
    /// The unit's name in texts.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The mean length in seconds, in the Gregorian calendar.
    const fn mean_seconds(self) -> u64 {
        match self {
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            // 400 years have 146,097 days.
            Self::Month => 146_097 * DAY / 4_800,
            Self::Year => 146_097 * DAY / 400,
        }
    }
}

impl Calendar {
    #[doc(hidden)]
    pub const fn of(unit: CalendarUnit) -> Self {
        Self {
            unit,
            starting_on: None,
            zone: UTC,
        }
    }

    /// The day of the month on which windows of months begin.
    pub(crate) fn first_day(self) -> u8 {
        self.starting_on.unwrap_or(1)
    }

    /// Whether the unit is the day, without another beginning.
    pub(super) fn is_of_days(self) -> bool {
        self.unit == CalendarUnit::Day && self.starting_on.is_none()
    }

    /// The zone, unless it is UTC for a unit that has no other meaning in UTC.
    pub(super) fn zone_set(self) -> Option<&'static str> {
        // A day without a zone has 24 hours, and any algorithm.
        let is_set = self.zone != UTC || self.unit == CalendarUnit::Day;
        is_set.then_some(self.zone)
    }

    pub(super) fn starting_on(self) -> Option<u32> {
        self.starting_on.map(u32::from)
    }

    /// The unit's name in texts.
    pub(super) const fn unit_name(self) -> &'static str {
        self.unit.name()
    }

    pub(super) const fn mean_period(self) -> Duration {
        Duration::from_secs(self.unit.mean_seconds())
    }

    /// A hash for the kinds of counters, never 0.
    pub(super) fn digest(self) -> u32 {
        // FNV-1a: it needs to distinguish a few configurations only.
        let text = format!("{}{self}", self.unit.name());
        let hash = text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        hash | 1
    }
}

/// The settings other than the unit, as in texts: ` starting_on 15 in Europe/Berlin`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(day) = self.starting_on {
            write!(f, " starting_on {day}")?;
        }
        match self.zone_set() {
            Some(zone) => write!(f, " in {zone}"),
            None => Ok(()),
        }
    }
}

/// Times of day with the limit from then on, in order; the first is 00:00.
pub(crate) type DayLimits = [(TimeOfDay, u64)];

/// A time of day, such as `08:00`, for [`Quota::varying`](crate::Quota::varying).
///
/// Never fails to be made, so that a list of times can be a constant: a quota with a time that no day
/// has is refused by [`Quota::check`](crate::Quota::check).
///
/// ```
/// use tower_ratelimit::quota::TimeOfDay;
///
/// const MORNING: TimeOfDay = TimeOfDay::at(8, 30);
/// assert_eq!(MORNING.to_string(), "08:30");
/// assert_eq!("08:30".parse(), Ok(MORNING));
/// assert!(TimeOfDay::MIDNIGHT < MORNING);
/// assert!("24:00".parse::<TimeOfDay>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use]
pub struct TimeOfDay([u8; 3]);

impl TimeOfDay {
    /// The beginning of a day, 00:00.
    pub const MIDNIGHT: Self = Self::at(0, 0);

    /// An hour from 0 to 23 and a minute from 0 to 59.
    pub const fn at(hour: u8, minute: u8) -> Self {
        Self([hour, minute, 0])
    }

    /// Sets the second, 0 to 59. Defaults to 0.
    pub const fn with_second(self, second: u8) -> Self {
        Self([self.0[0], self.0[1], second])
    }

    /// The time in seconds since midnight; `None` if no day has it.
    pub const fn seconds(self) -> Option<u32> {
        let [hour, minute, second] = self.0;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some(hour as u32 * 3_600 + minute as u32 * 60 + second as u32)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [hour, minute, second] = self.0;
        write!(f, "{hour:02}:{minute:02}")?;
        match second {
            0 => Ok(()),
            _ => write!(f, ":{second:02}"),
        }
    }
}

/// Reads `08:30`, or `08:30:15`.
///
/// # Errors
///
/// Any other text, of the kind [`Varying`](ConfigErrorKind::Varying).
impl FromStr for TimeOfDay {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parts = text.split(':');
        let parts = parts.map(|part| number(part).filter(|_| part.len() == 2));
        let time = match parts.collect::<Option<Vec<u8>>>().as_deref() {
            Some([hour, minute]) => Some(Self([*hour, *minute, 0])),
            Some([hour, minute, second]) => Some(Self([*hour, *minute, *second])),
            _ => None,
        };
        time.filter(|time| time.seconds().is_some()).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            ConfigError::new(
                ConfigErrorKind::Varying,
                format!(
                    "{shown:?} is no time of day; accepted are 00:00 to 23:59, or with seconds"
                ),
            )
        })
    }
}

/// The number of a text of digits only: without a sign.
pub(super) fn number<N: FromStr>(text: &str) -> Option<N> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}
