//! Times of the week, in a zone of fixed distance from UTC.

use crate::clock::Timestamp;

const MINUTES_A_DAY: u32 = 24 * 60;

/// A time of day on some days of the week, from one minute until just before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeWindow {
    from: u32,
    /// At most `from` where it is on the next day.
    to: u32,
    days: Days,
    /// The zone's minutes ahead of UTC.
    zone: i32,
}

/// Days of the week, Monday in the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Days(u8);

const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Days {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(0x7f);

    /// A day such as `mon`, or a range of them such as `fri-mon`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
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

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn contains(self, day: u64) -> bool {
        self.0 >> (day % 7) & 1 == 1
    }
}

impl TimeWindow {
    /// `None` if there is no time between the two.
    pub(super) const fn new(from: u32, to: u32, days: Days, zone: i32) -> Option<Self> {
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

    pub(super) fn contains(&self, now: Timestamp) -> bool {
        let minutes = now.as_micros() / 60_000_000;
        // A week later it is the same day of the week, and never before the epoch.
        let week = u64::from(7 * MINUTES_A_DAY);
        let local = (minutes + week).saturating_add_signed(i64::from(self.zone));
        let day = local / u64::from(MINUTES_A_DAY);
        // The epoch was a Thursday.
        let day = day + 3;
        let minute = (local % u64::from(MINUTES_A_DAY)) as u32;
        if self.from < self.to {
            return (self.from..self.to).contains(&minute) && self.days.contains(day);
        }
        // What began yesterday goes on until `to`.
        (minute >= self.from && self.days.contains(day))
            || (minute < self.to && self.days.contains(day + 6))
    }
}

/// A minute of the day, `00:00` to `24:00`.
pub(super) fn minute_of_day(text: &str) -> Result<u32, String> {
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

/// A zone's minutes ahead of UTC.
pub(super) fn zone(text: &str) -> Result<i32, String> {
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
