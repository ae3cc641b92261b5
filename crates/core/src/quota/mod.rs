//! Quotas: a number of requests per period, and the algorithm that counts them.

#[cfg_attr(
    not(feature = "calendar"),
    allow(dead_code, reason = "no quota has a calendar then")
)]
mod calendar;
#[cfg(feature = "calendar")]
mod calendar_quotas;
mod owned_quota;
#[allow(clippy::module_inception, reason = "files are named by their role")]
#[doc(hidden)]
pub mod quota;
#[cfg(feature = "serde")]
mod serde;
#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod text;
#[cfg(feature = "calendar")]
mod time_zone;
mod validate;
mod varying;

use std::{
    fmt,
    sync::{PoisonError, RwLock},
};

use crate::error::{ConfigError, ConfigErrorKind};

#[doc(hidden)]
pub use self::calendar::Calendar;
pub(crate) use self::calendar::DayLimits;
pub(crate) use self::owned_quota::DEFAULT_NAME;
pub(crate) use self::quota::Kind;
#[doc(hidden)]
pub use self::quota::{Fitted, Priority, Quota};
#[doc(hidden)]
pub use self::validate::{MAX_COUNT, MAX_REFILL_NANOS, MIN_INTERVAL_NANOS, check_name};
#[cfg(feature = "calendar")]
pub(crate) use self::{calendar::CalendarUnit, time_zone::kept_zone};
pub use self::{
    calendar::TimeOfDay,
    owned_quota::{IntoQuotas, OwnedQuota, QuotaList},
    quota::Algorithm,
};

const MAX_LEN: usize = 32;

/// The most names in a process. They are never freed, so that a policy has a byte for its unit.
const MAX_NAMES: usize = 200;

static NAMES: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());

/// The name of a unit that a [`Quota`](crate::Quota::unit) counts, such as `tokens`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnitName(u8);

impl UnitName {
    /// The unit of this name. A name that no quota had yet is kept for the rest of the process.
    #[doc(hidden)]
    pub fn of(name: &str) -> Result<Self, ConfigError> {
        Self::find_or_add(name, || Box::leak(name.to_owned().into_boxed_str()))
    }

    /// The unit of a name in the program.
    pub(crate) fn of_static(name: &'static str) -> Result<Self, ConfigError> {
        Self::find_or_add(name, || name)
    }

    fn find_or_add(name: &str, kept: impl FnOnce() -> &'static str) -> Result<Self, ConfigError> {
        let find = |names: &[&str]| names.iter().position(|known| *known == name);
        let known = find(&NAMES.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(at) = known {
            return Ok(Self::at(at));
        }
        check(name)?;
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = find(&names) {
            return Ok(Self::at(at));
        }
        if names.len() == MAX_NAMES {
            return Err(ConfigError::new(
                ConfigErrorKind::Unit,
                format!(
                    "unit {name:?}: this process has {MAX_NAMES} other names of units, the most that are accepted"
                ),
            ));
        }
        names.push(kept());
        Ok(Self::at(names.len() - 1))
    }

    const fn at(index: usize) -> Self {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "there are at most MAX_NAMES"
        )]
        Self(index as u8)
    }

    /// The number of the name, below [`u8::MAX`] − 1.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The name of this number, which [`number`](Self::number) has returned.
    pub(crate) const fn of_number(number: u8) -> Self {
        Self(number)
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        names.get(usize::from(self.0)).copied().unwrap_or_default()
    }
}

impl fmt::Debug for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

fn check(name: &str) -> Result<(), ConfigError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    if name.is_empty() || name.len() > MAX_LEN || !name.bytes().all(is_part) {
        return Err(ConfigError::new(
            ConfigErrorKind::Unit,
            format!(
                "{name:?} is no unit; accepted are 1 to {MAX_LEN} letters and digits of ASCII, and `-`, `_`, `.`, `/`"
            ),
        ));
    }
    Ok(())
}
