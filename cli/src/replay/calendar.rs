//! Dates below a chart: at most a few, at round times.

use tower_ratelimit::clock::Timestamp;

use super::series::MINUTE;
use crate::timestamp_formats;

const DAY: u64 = 1_440;

/// The possible distances of two dates, in minutes.
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

/// The most that are readable on a phone.
const MOST: u64 = 5;

/// A date on an axis.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AxisDate {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// The time of day, and the day if it differs from the one before.
    pub(super) lines: Vec<String>,
}

/// The dates of an axis between two times in microseconds since 1970.
pub(super) fn dates(from: u64, to: u64) -> Vec<AxisDate> {
    let minutes = to.saturating_sub(from).div_ceil(MINUTE);
    let fits = |gap: &&u64| minutes / **gap <= MOST;
    let gap = GAPS
        .iter()
        .find(fits)
        .copied()
        .unwrap_or(minutes.div_ceil(MOST))
        .max(1)
        * MINUTE;
    let first = from.div_ceil(gap) * gap;
    let mut day = String::new();
    let times = (0..=MOST).map(|place| first + place * gap);
    let dates = times.take_while(|at| *at < to).map(|at| {
        let time = Timestamp::from_micros(at);
        let date = timestamp_formats::format(time, "%-d %b");
        let clock = timestamp_formats::format(time, "%H:%M");
        let is_new = date != day;
        let lines = match (gap < DAY * MINUTE, is_new) {
            (true, true) => vec![clock, date.clone()],
            (true, false) => vec![clock],
            (false, _) => vec![date.clone()],
        };
        day = date;
        AxisDate { at, lines }
    });
    dates.collect()
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
            let texts: Vec<_> = dates.iter().map(|date| date.lines.join(" ")).collect();
            assert_eq!(texts, expected, "{minutes} minutes");
        }
        for minutes in [1, 7, 100, 3_000, 100_000, 5_000_000] {
            let many = dates(MIDNIGHT, MIDNIGHT + minutes * MINUTE).len();
            assert!((1..=6).contains(&many), "{minutes} minutes: {many}");
        }
    }
}
