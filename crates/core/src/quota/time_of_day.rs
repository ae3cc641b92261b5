//! `TimeOfDay`: a time of the clock in whole seconds.

use std::{fmt, str::FromStr};

use crate::error::{ConfigError, ConfigErrorKind};

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
