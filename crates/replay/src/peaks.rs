//! Peaks of each key: the most requests in a second, in ten, in a minute and in an hour; and a quota that nearly all keys
//! would have stayed under.

use tower_ratelimit::{Key, Quota};

use crate::key_counts::Sample;

/// The windows, in seconds, and their names.
pub(crate) const WINDOWS: [(u64, &str); 4] =
    [(1, "1 s"), (10, "10 s"), (60, "1 min"), (3_600, "1 h")];

/// The peaks of keys.
pub(crate) struct Peaks {
    keys: Sample<KeyCounts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct KeyCounts {
    windows: [Window; 4],
    /// A bit for each candidate that limited the key.
    limited: u32,
}

/// Windows that start at each half of their length, so that a burst at the edge of one is in the
/// middle of another.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// The number of the half, and the requests in it and in the one before.
    half: u32,
    count: u32,
    before: u32,
    peak: u32,
}

impl Window {
    /// Counts requests at a time in windows of this length, both in microseconds.
    fn count(&mut self, at: u64, length: u64, requests: u32) {
        // It wraps long after the times of all logs.
        let half = (at / (length / 2)) as u32;
        if half != self.half {
            let follows = half == self.half.wrapping_add(1);
            self.before = if follows { self.count } else { 0 };
            (self.half, self.count) = (half, 0);
        }
        self.count = self.count.saturating_add(requests);
        self.peak = self.peak.max(self.before.saturating_add(self.count));
    }
}

impl Peaks {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            keys: Sample::new(most),
        }
    }

    /// Counts an attempt, the candidates that limited it, and whether its response counts.
    pub(crate) fn count(&mut self, key: &Key, at: u64, limited: u32, counts: bool) {
        self.keys.note(key, |key| {
            key.limited |= limited;
            for (window, (seconds, _)) in key.windows.iter_mut().zip(WINDOWS) {
                window.count(at, seconds * 1_000_000, u32::from(counts));
            }
        });
    }

    /// The number of keys; an estimate for a sample.
    pub(crate) fn number(&self) -> u64 {
        self.keys.number()
    }

    pub(crate) fn is_sample(&self) -> bool {
        self.keys.is_part()
    }

    /// The number of keys that the candidate limited; an estimate for a sample.
    pub(crate) fn limited_by(&self, candidate: usize) -> u64 {
        let limits = |key: &KeyCounts| key.limited >> candidate & 1 == 1;
        self.keys.number_of(limits)
    }

    /// The peaks of all keys in a window, sorted. Excludes keys without a response that counts, and
    /// the shared key of attempts without one.
    pub(crate) fn sorted(&self, window: usize) -> Vec<u32> {
        let mut peaks: Vec<u32> = self
            .keys
            .but(&Key::anonymous())
            .map(|key| key.windows[window].peak)
            .filter(|peak| *peak > 0)
            .collect();
        peaks.sort_unstable();
        peaks
    }
}

/// The percentiles of the report, in tenths of a percent.
pub(crate) const PERCENTILES: [(usize, &str); 5] = [
    (500, "p50"),
    (900, "p90"),
    (990, "p99"),
    (999, "p99.9"),
    (1_000, "max"),
];

/// The peaks of keys, and the suggested quota.
pub(crate) struct Suggestion {
    /// For each window, the peaks at the percentiles.
    pub(crate) peaks: [[u32; PERCENTILES.len()]; WINDOWS.len()],
    pub(crate) quota: Quota,
}

impl Suggestion {
    /// A fifth more than 999 of 1,000 keys request in a minute; the burst is what they request in
    /// ten seconds.
    pub(crate) fn of(peaks: &Peaks) -> Option<Self> {
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

    /// The windows of ten seconds start every five.
    #[test]
    fn windows_begin_at_each_half() {
        let peak = |times: &[u64]| {
            let mut window = Window::default();
            for at in times {
                window.count(1_795_230_000_000_000 + at * 1_000_000, 10_000_000, 1);
            }
            window.peak
        };
        for (times, most) in [
            (&[9, 10][..], 2),
            (&[0, 4, 5, 9], 4),
            (&[0, 10], 1),
            (&[4, 10], 1),
            (&[4, 5, 9, 10, 14, 15], 4),
            (&[1, 30, 31], 2),
        ] {
            assert_eq!(peak(times), most, "{times:?}");
        }
    }

    #[test]
    fn a_sample_has_the_number_and_the_percentiles_of_all() {
        let (mut all, mut sample) = (Peaks::new(usize::MAX), Peaks::new(2_000));
        for round in 0..4_u64 {
            for number in 0..40_000_u64 {
                // Every tenth key sends a request in each round.
                if round == 0 || number % 10 == 0 {
                    let key = Key::from(number);
                    all.count(
                        &key,
                        1_795_230_001_000_000 + round,
                        u32::from(number % 4 == 0),
                        true,
                    );
                    sample.count(
                        &key,
                        1_795_230_001_000_000 + round,
                        u32::from(number % 4 == 0),
                        true,
                    );
                }
            }
        }
        assert_eq!(
            (all.number(), all.limited_by(0), all.is_sample()),
            (40_000, 10_000, false)
        );
        assert!(sample.is_sample());
        assert!(
            (36_000..44_000).contains(&sample.number()),
            "{}",
            sample.number()
        );
        assert!(
            (8_500..11_500).contains(&sample.limited_by(0)),
            "{}",
            sample.limited_by(0)
        );
        let share = |peaks: Vec<u32>| {
            let often = peaks.iter().filter(|peak| **peak == 4).count();
            often as f64 / peaks.len() as f64
        };
        assert!((share(all.sorted(2)) - 0.1).abs() < 1e-9);
        assert!((share(sample.sorted(2)) - 0.1).abs() < 0.03);
    }

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
