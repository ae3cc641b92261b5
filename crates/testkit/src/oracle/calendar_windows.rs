//! Windows of civil time by their definition: instants are tried one after another, until one has the
//! date that is sought. Only the offsets of zones are another's.

use std::{cell::RefCell, collections::HashMap};

use tower_ratelimit::Quota;

use super::Nanos;

const DAY: i128 = 86_400;
const NANOS: i128 = 1_000_000_000;

/// Monday 1969-12-29, in days since the epoch.
const FIRST_MONDAY: i128 = -3;

/// The steps in which instants are tried, in seconds. All offsets since 1970 are multiples of it.
const STEP: i128 = 30;

const UNITS: [&str; 4] = ["day", "month", "week", "year"];

/// Zones with half hours and quarters, without a midnight or with two, without a day, and with an offset
/// in seconds.
const ZONES: [&str; 10] = [
    "UTC",
    "Europe/Berlin",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "America/Havana",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Africa/Monrovia",
    "America/New_York",
];

/// The windows of a calendar: the indices of their unit and zone. Few bytes, since each random quota has
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Civil {
    unit: u8,
    first_day: u8,
    zone: u8,
}

/// A zone: its place among all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone(u8);

/// The zones that are whole hours from UTC, among those of [`ZONES`].
const WHOLE_HOURS: [u8; 6] = [0, 1, 2, 3, 4, 9];

impl Zone {
    /// One of many.
    pub const fn by_number(number: u64) -> Self {
        Self((number % ZONES.len() as u64) as u8)
    }

    /// One of many that are whole hours from UTC.
    pub const fn of_whole_hours(number: u64) -> Self {
        Self(WHOLE_HOURS[(number % WHOLE_HOURS.len() as u64) as usize])
    }

    fn name(self) -> &'static str {
        ZONES[usize::from(self.0)]
    }

    /// The civil time at an instant, as nanoseconds of the same clock in UTC.
    pub fn civil(self, now: Nanos) -> Nanos {
        now + offset(self.0, now.div_euclid(NANOS)) * NANOS
    }

    /// The quota whose limit varies in this zone.
    ///
    /// # Panics
    ///
    /// If the quota cannot vary there.
    pub fn vary(self, quota: Quota) -> Quota {
        in_zone(quota, self.name())
    }
}

/// Instants a few hours before clocks were set in these zones, in microseconds.
pub fn before_transitions() -> Vec<u64> {
    let hours = [
        // Berlin, Havana, New York.
        (1_774_746_000, 3),
        (1_792_890_000, 2),
        (1_772_946_000, 1),
        (1_793_512_800, 30),
        // Lord Howe, by half an hour.
        (1_775_314_800, 2),
        (1_791_041_400, 1),
        // Apia skipped a day, and Kathmandu a quarter of an hour.
        (1_325_239_200, 5),
        (504_901_800, 1),
        // São Paulo skipped a midnight.
        (1_541_300_400, 2),
    ];
    let before = |(second, hours): (u64, u64)| (second - hours * 3_600) * 1_000_000;
    hours.map(before).to_vec()
}

thread_local! {
    static BEGINS: RefCell<HashMap<(Civil, i128), Nanos>> = RefCell::default();
}

impl Civil {
    /// One of many.
    pub fn by_number(number: u64) -> Self {
        let first_days = [1, 15, 28, 2];
        let mut civil = Self {
            unit: (number % 4) as u8,
            first_day: 1,
            zone: (number / 16 % 10) as u8,
        };
        if civil.unit() == "month" {
            civil.first_day = first_days[(number / 4 % 4) as usize];
        }
        civil
    }

    fn unit(&self) -> &'static str {
        UNITS[usize::from(self.unit)]
    }

    fn zone(&self) -> &'static str {
        ZONES[usize::from(self.zone)]
    }

    /// A quota with these windows.
    ///
    /// # Panics
    ///
    /// If the system has no zones.
    pub fn quota(&self, limit: u64) -> Quota {
        let from = match self.first_day {
            1 => String::new(),
            day => format!(" starting_on {day}"),
        };
        let text = format!("{limit}/{}{from} in {}", self.unit(), self.zone());
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The window that has begun last.
    pub fn window_at(&self, now: Nanos) -> i128 {
        let day = now.div_euclid(NANOS * DAY);
        let mut index = 3 + match self.unit() {
            "day" => day - FIRST_MONDAY,
            "week" => (day - FIRST_MONDAY).div_euclid(7),
            "month" => 1970 * 12 + day * 4_800 / 146_097,
            _ => 1970 + day * 400 / 146_097,
        };
        while self.begin(index) > now {
            index -= 1;
        }
        index
    }

    /// The first instant of the window's first day, or of a later one if the zone skips that day. 0 for
    /// those before the epoch.
    pub fn begin(&self, index: i128) -> Nanos {
        let known = BEGINS.with_borrow(|begins| begins.get(&(*self, index)).copied());
        known.unwrap_or_else(|| {
            let begin = self.search(self.first_day_of(index)) * NANOS;
            BEGINS.with_borrow_mut(|begins| begins.insert((*self, index), begin.max(0)));
            begin.max(0)
        })
    }

    /// The first day of a window, in days since the epoch.
    fn first_day_of(&self, index: i128) -> i128 {
        match self.unit() {
            "day" => FIRST_MONDAY + index,
            "week" => FIRST_MONDAY + 7 * index,
            "month" => {
                day_of(index.div_euclid(12), index.rem_euclid(12) + 1) + i128::from(self.first_day)
                    - 1
            }
            _ => day_of(index, 1),
        }
    }

    /// The first second at which the date is `day`, or later.
    fn search(&self, day: i128) -> i128 {
        let offset = |second| offset(self.zone, second);
        let around = (-27..=27).map(|hour| offset(day * DAY + hour * 3_600));
        let around: Vec<_> = around.collect();
        let (Some(least), Some(most)) = (around.iter().min(), around.iter().max()) else {
            return 0;
        };
        let (mut second, last) = (day * DAY - most, day * DAY - least);
        while second < last && (second + offset(second)).div_euclid(DAY) < day {
            second += STEP;
        }
        second
    }
}

/// How many seconds a zone is ahead of UTC.
#[cfg(feature = "calendar")]
fn offset(zone: u8, second: i128) -> i128 {
    use jiff::{Timestamp, tz::TimeZone};

    thread_local! {
        static OPEN: Vec<TimeZone> = ZONES
            .iter()
            .map(|zone| TimeZone::get(zone).expect("a zone of the system"))
            .collect();
    }
    OPEN.with(|zones| {
        let zone = &zones[usize::from(zone)];
        let second = i64::try_from(second).expect("in range");
        let at = Timestamp::from_second(second).expect("in range");
        zone.to_offset(at).seconds().into()
    })
}

/// Without the feature `calendar` no quota has a zone.
#[cfg(not(feature = "calendar"))]
fn offset(zone: u8, _: i128) -> i128 {
    unreachable!("{} needs the feature calendar", ZONES[usize::from(zone)])
}

/// The first of a month, in days since the epoch.
fn day_of(year: i128, month: i128) -> i128 {
    let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400;
    // 1970-01-01 is 719,162 days after the first of the year 1.
    let years = before * 365 + leap_days - 719_162;
    let february = 28 + i128::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30];
    years + months.iter().take(month as usize - 1).sum::<i128>()
}

#[cfg(feature = "calendar")]
fn in_zone(quota: Quota, zone: &'static str) -> Quota {
    quota.in_zone(zone)
}

#[cfg(not(feature = "calendar"))]
fn in_zone(_: Quota, zone: &'static str) -> Quota {
    unreachable!("{zone} needs the feature calendar")
}
