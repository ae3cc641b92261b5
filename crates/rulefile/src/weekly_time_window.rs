//! Times of the week, in a zone with a fixed offset from UTC.

const MINUTES_A_DAY: u32 = 24 * 60;

/// A time of day on some days of the week, in whole minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// The first minute of the day.
    from: u32,
    /// The first minute that is not part of it; on the next day if it is not greater than `from`.
    to: u32,
    /// The days on which the time begins.
    days: Days,
    /// The zone's offset from UTC in minutes.
    zone: i32,
}

/// A set of days of the week. Monday is the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days(u8);

const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Days {
    /// No day.
    pub const NONE: Self = Self(0);
    /// All seven days.
    pub const ALL: Self = Self(0x7f);

    /// Parses a day such as `mon`, or a range such as `fri-mon`.
    ///
    /// # Errors
    ///
    /// A message for any other text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "{text:?} is no day; accepted are {} and ranges such as \"mon-fri\"",
                NAMES.join(", ")
            )
        };
        let day = |name: &str| {
            let name = name.trim().to_ascii_lowercase();
            NAMES
                .iter()
                .position(|known| *known == name)
                .ok_or_else(unknown)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7;
        let bits = (0..=count).map(|step| 1 << ((first + step) % 7));
        Ok(Self(bits.fold(0, |days, bit: u8| days | bit)))
    }

    /// The days of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn contains(self, day: u64) -> bool {
        self.0 >> (day % 7) & 1 == 1
    }
}

impl TimeWindow {
    /// The time from the minute `from` of the day until just before the minute `to`; `zone` is in minutes ahead of UTC.
    /// `None` if the two are equal.
    pub const fn new(from: u32, to: u32, days: Days, zone: i32) -> Option<Self> {
        if from == to {
            return None;
        }
        Some(Self {
            from,
            to,
            days,
            zone,
        })
    }

    /// Whether an instant is in the time. `minutes` are the whole minutes since 1970-01-01 00:00 UTC.
    pub fn contains(&self, minutes: u64) -> bool {
        // A week is added, so that a zone west of UTC never leads before the epoch.
        let week = u64::from(7 * MINUTES_A_DAY);
        let local = minutes
            .saturating_add(week)
            .saturating_add_signed(i64::from(self.zone));
        let day = local / u64::from(MINUTES_A_DAY);
        // The epoch was a Thursday.
        let day = day + 3;
        let minute = (local % u64::from(MINUTES_A_DAY)) as u32;
        if self.from < self.to {
            return (self.from..self.to).contains(&minute) && self.days.contains(day);
        }
        // A time that began yesterday ends today at `to`.
        (minute >= self.from && self.days.contains(day))
            || (minute < self.to && self.days.contains(day + 6))
    }
}

/// Parses a time of day, `00:00` to `24:00`, as minutes since midnight.
///
/// # Errors
///
/// A message for any other text.
pub fn minute_of_day(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no time of day; accepted are 00:00 to 24:00");
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let minute = two_digits(hours)
        .zip(two_digits(minutes))
        .filter(|(_, minutes)| *minutes < 60);
    let minute = minute.map(|(hours, minutes)| hours * 60 + minutes);
    minute
        .filter(|minute| *minute <= MINUTES_A_DAY)
        .ok_or_else(wrong)
}

/// Parses a zone, `UTC` or its offset such as `+05:30`, as minutes ahead of UTC.
///
/// # Errors
///
/// A message for any other text.
pub fn zone(text: &str) -> Result<i32, String> {
    let wrong = || {
        format!(
            "{text:?} is no zone; accepted are UTC and its distance, such as \"+05:30\". Names of \
             cities are not, since their rules change"
        )
    };
    if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("z") {
        return Ok(0);
    }
    let (sign, distance) = match text.split_at_checked(1) {
        Some(("+", distance)) => (1, distance),
        Some(("-", distance)) => (-1, distance),
        _ => return Err(wrong()),
    };
    let minutes = minute_of_day(distance)
        .ok()
        .filter(|minutes| *minutes <= 18 * 60);
    let minutes = minutes.ok_or_else(wrong)?;
    Ok(sign * minutes as i32)
}

fn two_digits(text: &str) -> Option<u32> {
    let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}
