//! Quotas that follow the calendar: constructors and settings, and what limiters accept.

use std::time::Duration;

use jiff::{
    Timestamp,
    tz::{Offset, TimeZone},
};

use super::{
    Algorithm, Quota,
    calendar::{Calendar, CalendarUnit},
    time_zone::known,
};
use crate::error::{ConfigError, ConfigErrorKind};

const HOUR: Duration = Duration::from_secs(3_600);

/// The quota per week, month or year of the calendar; `None` for another unit. A day has 24 hours
/// until it has a zone.
pub(super) fn quota_per(limit: u64, unit: &str) -> Option<Quota> {
    let mut units = [CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year].into_iter();
    let unit = units.find(|known| known.name() == unit)?;
    Some(Quota::per_unit(limit, unit))
}

impl Calendar {
    /// Checks that limiters accept the calendar of `quota`.
    pub(super) fn check(self, quota: &Quota) -> Result<(), ConfigError> {
        // Before all others: rule files show this fault at the algorithm.
        if quota.algorithm() != Algorithm::FixedWindow {
            return refuse(format!(
                "a quota of the calendar counts in a fixed window: {} cannot count it; leave the algorithm \
             out",
                quota.algorithm_name()
            ));
        }
        let unit = self.unit_name();
        if quota.period() != self.mean_period() {
            return refuse(format!(
                "in_zone and starting_on of a quota per {:?}; accepted are quotas per day, week, month and \
             year",
                quota.period()
            ));
        }
        match self.starting_on {
            Some(day) if self.unit != CalendarUnit::Month => {
                return refuse(format!(
                    "starting_on({day}) of a quota per {unit}; accepted are quotas per month"
                ));
            }
            Some(day) if !(1..=28).contains(&day) => {
                return refuse(format!(
                    "starting_on({day}) is no day of every month; accepted are days 1 to 28"
                ));
            }
            _ => {}
        }
        if let Some(slices) = quota.slices_set() {
            let message = format!(
                "slices({slices}) of a quota per {unit} of the calendar: it counts in a fixed window, which \
             has no slices; leave them out"
            );
            return Err(ConfigError::new(ConfigErrorKind::Slices, message));
        }
        known(self.zone).map(drop)
    }

    /// Checks that the slices of a limit that varies in this zone begin where its times of day can: the zone's
    /// clocks are set by hours, or by quarters of one.
    pub(super) fn check_slice(self, slice: Duration) -> Result<(), ConfigError> {
        let (_, zone) = known(self.zone)?;
        let accepted = if is_whole_hours(zone) { HOUR } else { HOUR / 4 };
        if accepted.as_nanos().is_multiple_of(slice.as_nanos()) {
            return Ok(());
        }
        Err(ConfigError::new(
            ConfigErrorKind::Varying,
            format!(
                "varying: a window or slice of {slice:?} in {}; accepted there is one that divides \
             {accepted:?}, by which its clocks are set",
                self.zone
            ),
        ))
    }
}

fn refuse(message: String) -> Result<(), ConfigError> {
    Err(ConfigError::new(ConfigErrorKind::Calendar, message))
}

/// Quotas that follow the calendar, by the feature `calendar`.
impl Quota {
    /// `limit` units a week of the calendar, from Monday to Sunday, in UTC or in
    /// [a zone](Self::in_zone). Counted by a [fixed window](Algorithm::FixedWindow), the only
    /// algorithm of calendar quotas.
    ///
    /// ```
    /// use tower_ratelimit::Quota;
    ///
    /// const WEEK: Quota = Quota::per_week(500).in_zone("Europe/Berlin");
    /// assert_eq!("500/week in Europe/Berlin".parse(), Ok(WEEK));
    /// ```
    pub const fn per_week(limit: u64) -> Self {
        Self::per_unit(limit, CalendarUnit::Week)
    }

    /// `limit` units a month of the calendar, from its first day, or from
    /// [another one](Self::starting_on), in UTC or in [a zone](Self::in_zone). Counted by a
    /// [fixed window](Algorithm::FixedWindow), the only algorithm of calendar quotas.
    ///
    /// A month has 28 to 31 days. So the policy in the fields of responses has no window `w`; `t` and
    /// `Retry-After` are exact.
    ///
    /// ```
    /// use tower_ratelimit::{Key, LocalLimiter, Quota, clock::ManualClock};
    ///
    /// // 2026-01-01T00:00Z.
    /// let clock = ManualClock::new();
    /// let quota = Quota::per_month(1_000);
    /// let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build()?;
    /// let key = Key::from("alice");
    /// assert!(limiter.acquire(&key, 1_000).is_allowed());
    /// let days = |days: u64| std::time::Duration::from_secs(days * 86_400);
    /// assert_eq!(limiter.peek(&key, 1).retry_after(), Some(days(31)));
    /// clock.advance(days(31));
    /// assert!(limiter.acquire(&key, 1).is_allowed());
    /// # Ok::<_, tower_ratelimit::ConfigError>(())
    /// ```
    pub const fn per_month(limit: u64) -> Self {
        Self::per_unit(limit, CalendarUnit::Month)
    }

    /// `limit` units a year of the calendar, from 1 January, in UTC or in [a zone](Self::in_zone).
    /// Counted by a [fixed window](Algorithm::FixedWindow), the only algorithm of calendar quotas.
    pub const fn per_year(limit: u64) -> Self {
        Self::per_unit(limit, CalendarUnit::Year)
    }

    /// Counts in civil time of a zone of the IANA database, such as `Europe/Berlin`: days, weeks, months
    /// and years begin at the first instant of their first day there. A day then has 23 or 25 hours when
    /// the zone's clocks are set, and a [fixed window](Algorithm::FixedWindow) counts it, whatever
    /// algorithm was set before.
    ///
    /// The times of day of a limit that [varies](Self::varying) become those of the zone, in windows and
    /// slices that stay in UTC: the limit of a slice is that of the civil time at which it begins. Entries
    /// of an hour that the zone skips are not in force that day, and those of an hour that it repeats are
    /// twice.
    ///
    /// The zones are those of the operating system. A limiter cannot be built with one that the system
    /// does not know, nor from another spelling. [`try_in_zone`](Self::try_in_zone) takes a name from
    /// run time.
    ///
    /// ```
    /// use tower_ratelimit::{Quota, quota::TimeOfDay};
    ///
    /// const DAY: Quota = Quota::per_day(100).in_zone("Asia/Kathmandu");
    /// assert!(DAY.check().is_ok());
    /// assert!(Quota::per_hour(100).in_zone("Asia/Kathmandu").check().is_err());
    /// assert!(DAY.in_zone("Asia/Katmandoo").check().is_err());
    ///
    /// const OFFICE: Quota = Quota::per_hour(500)
    ///     .sliding_window()
    ///     .slices(4)
    ///     .varying(&[(TimeOfDay::MIDNIGHT, 100), (TimeOfDay::at(8, 0), 500)])
    ///     .in_zone("Europe/Berlin");
    /// let text = "500/hour sliding_window slices 4 varying 00:00=100/08:00=500 in Europe/Berlin";
    /// assert_eq!(text.parse(), Ok(OFFICE));
    /// ```
    pub const fn in_zone(mut self, zone: &'static str) -> Self {
        let mut calendar = self.calendar_or_day();
        calendar.zone = zone;
        self.calendar = Some(calendar);
        if !self.may_vary_in_a_zone() {
            self.algorithm = Algorithm::FixedWindow;
        }
        self
    }

    /// Whether the zone is that of times of day, or may become it: a sliding window of another period than
    /// those of the calendar has no other use for one.
    const fn may_vary_in_a_zone(&self) -> bool {
        let slides = matches!(self.algorithm, Algorithm::SlidingWindow);
        let period = self.calendar_or_day().mean_period();
        self.varying.is_some() || slides && self.period().as_nanos() != period.as_nanos()
    }

    /// [`in_zone`](Self::in_zone) with a name from run time, such as one of a customer's row.
    ///
    /// # Errors
    ///
    /// If the system does not know the zone.
    pub fn try_in_zone(self, zone: &str) -> Result<Self, ConfigError> {
        Ok(self.in_zone(known(zone)?.0))
    }

    /// Begins months on this day instead of the first, such as the day on which a customer is billed.
    /// 1 to 28, since other days are not in every month. A [fixed window](Algorithm::FixedWindow) counts
    /// it, whatever algorithm was set before.
    ///
    /// ```
    /// use tower_ratelimit::Quota;
    ///
    /// const BILLED: Quota = Quota::per_month(10_000).starting_on(15);
    /// assert_eq!(BILLED.to_string(), "10000/month starting_on 15");
    /// assert!(BILLED.starting_on(29).check().is_err());
    /// ```
    pub const fn starting_on(mut self, day: u8) -> Self {
        let mut calendar = self.calendar_or_day();
        calendar.starting_on = match (calendar.unit, day) {
            (CalendarUnit::Month, 1) => None,
            _ => Some(day),
        };
        self.calendar = Some(calendar);
        self.algorithm = Algorithm::FixedWindow;
        self
    }

    const fn per_unit(limit: u64, unit: CalendarUnit) -> Self {
        let calendar = Calendar::of(unit);
        let mut quota = Self::per(limit, calendar.mean_period()).fixed_window();
        quota.calendar = Some(calendar);
        quota
    }

    const fn calendar_or_day(&self) -> Calendar {
        match self.calendar {
            Some(calendar) => calendar,
            None => Calendar::of(CalendarUnit::Day),
        }
    }
}

/// 2026-01-01T00:00Z. Many zones had odd minutes when time was that of the sun, and no limiter runs then.
const SINCE: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// More than the transitions that the database lists one by one, which end with the year 2087.
const MOST_TRANSITIONS: usize = 256;

/// Whether the zone is whole hours ahead of UTC or behind it at all times since 2026.
fn is_whole_hours(zone: &TimeZone) -> bool {
    let is_whole = |offset: Offset| offset.seconds() % 3_600 == 0;
    // After the listed transitions the same ones repeat each year.
    let mut transitions = zone.following(SINCE).take(MOST_TRANSITIONS);
    is_whole(zone.to_offset(SINCE)) && transitions.all(|transition| is_whole(transition.offset()))
}
