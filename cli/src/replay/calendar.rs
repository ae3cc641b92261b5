//! Dates below a picture: round times of which few fit beside each other.

use super::{series::MINUTE, tally::time_of};

const DAY: u64 = 1_440;

/// Minutes from one date to the next.
const GAPS: [u64; 17] = [
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    180,
    360,
    720,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
];

/// As many as can be read on a phone.
const MOST: u64 = 5;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A date on an axis.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AxisDate {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// The time of day, and the day where it is another than before.
    pub(super) lines: Vec<String>,
}

/// The dates of an axis from a time on and before another one, both in microseconds since 1970.
pub(super) fn dates(from: u64, to: u64) -> Vec<AxisDate> {
    let minutes = to.saturating_sub(from).div_ceil(MINUTE);
    let fits = |gap: &&u64| minutes / **gap <= MOST;
    let gap = GAPS.iter().find(fits).copied();
    let gap = gap.unwrap_or(minutes.div_ceil(MOST)).max(1) * MINUTE;
    let first = from.div_ceil(gap) * gap;
    let mut day = String::new();
    let times = (0..=MOST).map(|place| first + place * gap);
    let dates = times.take_while(|at| *at < to).map(|at| {
        let time = time_of(at);
        let (date, clock) = (day_of(&time), time.get(11..16).unwrap_or_default());
        let is_new = date != day;
        let lines = match (gap < DAY * MINUTE, is_new) {
            (true, true) => vec![clock.to_owned(), date.clone()],
            (true, false) => vec![clock.to_owned()],
            (false, _) => vec![date.clone()],
        };
        day = date;
        AxisDate { at, lines }
    });
    dates.collect()
}

/// `20 Nov`.
fn day_of(time: &str) -> String {
    let month = time.get(5..7).and_then(|month| month.parse::<usize>().ok());
    let name = month.and_then(|month| MONTHS.get(month.checked_sub(1)?));
    let day = time.get(8..10).unwrap_or_default();
    format!(
        "{} {}",
        day.trim_start_matches('0'),
        name.copied().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20T00:00:00Z.
    const MIDNIGHT: u64 = 1_795_132_800_000_000;

    #[test]
    fn dates_are_round_and_few() {
        for (from, minutes, expected) in [
            (0, 1, vec!["00:00 20 Nov"]),
            (0, DAY, vec!["00:00 20 Nov", "06:00", "12:00", "18:00"]),
            (
                MINUTE + 1,
                61,
                vec!["00:15 20 Nov", "00:30", "00:45", "01:00"],
            ),
            (
                0,
                5 * DAY,
                vec!["20 Nov", "21 Nov", "22 Nov", "23 Nov", "24 Nov"],
            ),
        ] {
            let from = MIDNIGHT + from;
            let dates = dates(from, from + minutes * MINUTE);
            let told: Vec<_> = dates.iter().map(|date| date.lines.join(" ")).collect();
            assert_eq!(told, expected, "{minutes} minutes");
        }
        for minutes in [1, 7, 100, 3_000, 100_000, 5_000_000] {
            let many = dates(MIDNIGHT, MIDNIGHT + minutes * MINUTE).len();
            assert!((1..=6).contains(&many), "{minutes} minutes: {many}");
        }
    }
}
