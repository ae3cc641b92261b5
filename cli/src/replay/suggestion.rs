//! A quota that nearly all keys would have stayed under.

use tower_ratelimit::Quota;

use super::peaks::{Peaks, WINDOWS};

/// The percentiles of the report, in tenths of a percent.
pub(super) const PERCENTILES: [(usize, &str); 5] = [
    (500, "p50"),
    (900, "p90"),
    (990, "p99"),
    (999, "p99.9"),
    (1_000, "max"),
];

/// The peaks of keys, and the suggested quota.
pub(super) struct Suggestion {
    /// For each window, the peaks at the percentiles.
    pub(super) peaks: [[u32; PERCENTILES.len()]; WINDOWS.len()],
    pub(super) quota: Quota,
}

impl Suggestion {
    /// A fifth more than 999 of 1,000 keys request in a minute; the burst is what they request in
    /// ten seconds.
    pub(super) fn of(peaks: &Peaks) -> Option<Self> {
        let sorted: [Vec<u32>; WINDOWS.len()] = std::array::from_fn(|window| peaks.sorted(window));
        if sorted.iter().any(Vec::is_empty) {
            return None;
        }
        let peaks = sorted.map(|sorted| PERCENTILES.map(|(share, _)| at(&sorted, share)));
        let [_, ten, minute, _]: [[u32; 5]; 4] = peaks;
        let quota = Quota::per_minute(with_room(minute[3])).burst(with_room(ten[3]));
        Some(Self { peaks, quota })
    }
}

/// The least of the sorted values that is at least as large as this share of them, in tenths of a
/// percent.
fn at(sorted: &[u32], share: usize) -> u32 {
    let place = (sorted.len() * share).div_ceil(1_000).max(1) - 1;
    sorted[place]
}

/// A fifth more, rounded to two significant digits.
fn with_room(peak: u32) -> u64 {
    let more = (u64::from(peak) * 6).div_ceil(5).max(1);
    let unit = 10_u64.pow(more.ilog10().saturating_sub(1));
    more.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_there_are() {
        let sorted: Vec<u32> = (1..=1_000).collect();
        assert_eq!(
            PERCENTILES.map(|(share, _)| at(&sorted, share)),
            [500, 900, 990, 999, 1_000]
        );
        assert_eq!(PERCENTILES.map(|(share, _)| at(&[7], share)), [7; 5]);
    }

    #[test]
    fn room_is_two_digits() {
        assert_eq!(
            [0, 1, 5, 9, 99, 100, 8_400].map(with_room),
            [1, 2, 6, 11, 120, 120, 11_000]
        );
    }
}
