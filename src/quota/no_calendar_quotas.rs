//! Stands in for `calendar_quotas.rs` without the feature `calendar`: texts have no calendar.

use std::time::Duration;

use super::{Quota, calendar::Calendar};
use crate::error::{ConfigError, ConfigErrorKind};

/// Checks the calendar of a quota: no quota has one.
pub(super) const fn check(calendar: Calendar, _: &Quota) -> Result<(), ConfigError> {
    match calendar {}
}

/// Checks the slice of a limit that varies in a zone: none does.
pub(super) const fn check_slice(calendar: Calendar, _: Duration) -> Result<(), ConfigError> {
    match calendar {}
}

/// The quota per week, month or year of the calendar: there is none.
pub(super) const fn quota_per(_: u64, _: &str) -> Option<Quota> {
    None
}

/// The rate without a zone.
pub(super) fn in_civil_time(
    rate: Quota,
    zone: Option<&str>,
    starting_on: Option<u32>,
) -> Result<Quota, ConfigError> {
    if zone.is_none() && starting_on.is_none() {
        return Ok(rate);
    }
    Err(ConfigError::new(
        ConfigErrorKind::Calendar,
        "this build follows no calendar; a zone or a first day needs the feature `calendar`",
    ))
}
