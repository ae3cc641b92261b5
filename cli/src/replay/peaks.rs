//! Peaks of each key: the most requests in a second, in ten, in a minute and in an hour.

use tower_ratelimit::Key;

use super::key_sample::Sample;

/// The windows, in seconds, and their names.
pub(super) const WINDOWS: [(u64, &str); 4] =
    [(1, "1 s"), (10, "10 s"), (60, "1 min"), (3_600, "1 h")];

/// The peaks of keys.
pub(super) struct Peaks {
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
    pub(super) fn new(most: usize) -> Self {
        Self {
            keys: Sample::new(most),
        }
    }

    /// Counts an attempt, the candidates that limited it, and whether its response counts.
    pub(super) fn count(&mut self, key: &Key, at: u64, limited: u32, counts: bool) {
        self.keys.note(key, |key| {
            key.limited |= limited;
            for (window, (seconds, _)) in key.windows.iter_mut().zip(WINDOWS) {
                window.count(at, seconds * 1_000_000, u32::from(counts));
            }
        });
    }

    /// The number of keys; an estimate for a sample.
    pub(super) fn number(&self) -> u64 {
        self.keys.number()
    }

    pub(super) fn is_sample(&self) -> bool {
        self.keys.is_part()
    }

    /// The number of keys that the candidate limited; an estimate for a sample.
    pub(super) fn limited_by(&self, candidate: usize) -> u64 {
        let limits = |key: &KeyCounts| key.limited >> candidate & 1 == 1;
        self.keys.number_of(limits)
    }

    /// The peaks of all keys in a window, sorted. Excludes keys without a response that counts, and
    /// the shared key of attempts without one.
    pub(super) fn sorted(&self, window: usize) -> Vec<u32> {
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
}
