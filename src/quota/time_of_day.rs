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
/// use tower_ratelimit::TimeOfDay;
///
/// const MORNING: TimeOfDay = TimeOfDay::at(8, 30);
/// assert_eq!(MORNING.to_string(), "08:30");
/// assert_eq!("08:30".parse(), Ok(MORNING));
/// assert!(TimeOfDay::MIDNIGHT < MORNING);
/// assert!("24:00".parse::<TimeOfDay>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use]
pub struct TimeOfDay {
    hour: u8,
    minute: u8,
    second: u8,
}

impl TimeOfDay {
    /// The beginning of a day, 00:00.
    pub const MIDNIGHT: Self = Self::at(0, 0);

    /// An hour from 0 to 23 and a minute from 0 to 59.
    pub const fn at(hour: u8, minute: u8) -> Self {
        Self {
            hour,
            minute,
            second: 0,
        }
    }

    /// Sets the second, 0 to 59. Defaults to 0.
    pub const fn with_second(self, second: u8) -> Self {
        Self { second, ..self }
    }

    /// The time in seconds since midnight; `None` if no day has it.
    pub const fn seconds(self) -> Option<u32> {
        if self.hour > 23 || self.minute > 59 || self.second > 59 {
            return None;
        }
        Some(self.hour as u32 * 3_600 + self.minute as u32 * 60 + self.second as u32)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)?;
        if self.second > 0 {
            write!(f, ":{:02}", self.second)?;
        }
        Ok(())
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
        let wrong = || {
            let shown: String = text.chars().take(40).collect();
            ConfigError::new(
                ConfigErrorKind::Varying,
                format!(
                    "{shown:?} is no time of day; accepted are 00:00 to 23:59, or with seconds"
                ),
            )
        };
        let parts = text.split(':').map(|part| {
            let is_two_digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_| is_two_digits)
        });
        let parts: Option<Vec<u8>> = parts.collect();
        let time = match parts.as_deref() {
            Some([hour, minute]) => Self::at(*hour, *minute),
            Some([hour, minute, second]) => Self::at(*hour, *minute).with_second(*second),
            _ => return Err(wrong()),
        };
        match time.seconds() {
            Some(_) => Ok(time),
            None => Err(wrong()),
        }
    }
}
