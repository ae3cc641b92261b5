//! `Calendar`: windows of civil time, which are days, weeks, months or years of a zone.

use std::{fmt, time::Duration};

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
