//! Reordering of attempts: servers write lines when requests end, and many in whole seconds only.

use std::{collections::BTreeMap, time::Duration};

use crate::log_entry::Attempt;

const SECOND: u64 = 1_000_000;

/// The most bytes of buffered attempts.
const MOST_BYTES: usize = 256 << 20;

/// Clocks of servers may jump forward and back: fewer consecutive lines ahead of the window stay
/// buffered until the log reaches their time.
pub(crate) const AHEAD: usize = 32;

/// Attempts buffered by their second until no earlier one can follow.
pub(crate) struct Reordering {
    seconds: BTreeMap<u64, Vec<Attempt>>,
    /// The bytes of the buffered attempts.
    waiting: usize,
    /// How many seconds late an attempt may be.
    window: u64,
    /// The latest second of the log.
    newest: u64,
    /// The seconds of the last consecutive attempts ahead of the window.
    ahead: Vec<u64>,
    /// The first second that was not released.
    done: u64,
    /// Whether attempts with whole seconds are spread evenly over their second, in the order of their lines. Else all are
    /// at its first instant.
    spreads: bool,
    late: u64,
}

impl Reordering {
    pub(crate) fn new(window: Duration, spreads: bool) -> Self {
        Self {
            seconds: BTreeMap::new(),
            waiting: 0,
            window: seconds_of(window),
            newest: 0,
            ahead: Vec::new(),
            done: 0,
            spreads,
            late: 0,
        }
    }

    /// The number of attempts that were too late, and were decided at the current time.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    pub(crate) fn push(&mut self, mut attempt: Attempt, decide: &mut impl FnMut(Attempt)) {
        let second = attempt.at / SECOND;
        if second < self.done {
            self.late += 1;
            attempt.at = self.done * SECOND;
            return decide(attempt);
        }
        self.advance(second);
        self.waiting += attempt.bytes;
        self.seconds.entry(second).or_default().push(attempt);
        while self.waiting > MOST_BYTES
            || self
                .first()
                .is_some_and(|first| first + self.window < self.newest)
        {
            self.release(decide);
        }
    }

    /// Advances the log to an attempt of this second.
    fn advance(&mut self, second: u64) {
        if second <= self.newest + self.window {
            self.newest = self.newest.max(second);
            return self.ahead.clear();
        }
        self.ahead.push(second);
        if self.ahead.len() == AHEAD {
            let least = self.ahead.iter().min().copied();
            self.newest = least.unwrap_or(second);
            let reach = self.newest + self.window;
            self.ahead.retain(|second| *second > reach);
        }
    }

    pub(crate) fn finish(&mut self, decide: &mut impl FnMut(Attempt)) {
        while !self.seconds.is_empty() {
            self.release(decide);
        }
    }

    fn first(&self) -> Option<u64> {
        self.seconds.first_key_value().map(|(second, _)| *second)
    }

    /// Releases the attempts of the first second.
    fn release(&mut self, decide: &mut impl FnMut(Attempt)) {
        let Some((second, mut attempts)) = self.seconds.pop_first() else {
            return;
        };
        self.waiting -= attempts.iter().map(|attempt| attempt.bytes).sum::<usize>();
        self.done = second + 1;
        self.place(second, &mut attempts);
        attempts.into_iter().for_each(decide);
    }

    fn place(&self, second: u64, attempts: &mut Vec<Attempt>) {
        if self.spreads {
            if attempts
                .iter()
                .any(|attempt| attempt.source != attempts[0].source)
            {
                mix(attempts);
            }
            let whole = attempts.iter().filter(|attempt| attempt.is_whole).count() as u64;
            let of_second = attempts.iter_mut().filter(|attempt| attempt.is_whole);
            for (number, attempt) in (0..).zip(of_second) {
                attempt.at = second * SECOND + number * SECOND / whole;
            }
        }
        attempts.sort_by_key(|attempt| attempt.at);
    }
}

/// The window in whole seconds.
pub(crate) const fn seconds_of(window: Duration) -> u64 {
    window.as_secs() + (window.subsec_nanos() > 0) as u64
}

/// Mixes attempts of a second, so that those of each file are spread evenly.
fn mix(attempts: &mut Vec<Attempt>) {
    // For each file, the number of all attempts, and of those placed.
    let mut files: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for attempt in &*attempts {
        files.entry(attempt.source).or_default().0 += 1;
    }
    let placed = attempts.drain(..).map(|attempt| {
        let (all, before) = files.entry(attempt.source).or_default();
        *before += 1;
        ((*before - 1) * SECOND / *all, attempt)
    });
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(share, _)| *share);
    attempts.extend(placed.into_iter().map(|(_, attempt)| attempt));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tower_ratelimit::Key;

    fn attempt(at: u64, is_whole: bool) -> Attempt {
        Attempt {
            at,
            is_whole,
            status: 200,
            source: 0,
            key: Key::global(),
            request: None,
            bytes: 100,
        }
    }

    fn ordered(times: impl IntoIterator<Item = (u64, bool)>, spreads: bool) -> (Vec<u64>, u64) {
        let mut order = Reordering::new(Duration::from_secs(10), spreads);
        let mut released = Vec::new();
        for (at, is_whole) in times {
            order.push(attempt(at, is_whole), &mut |attempt| {
                released.push(attempt.at)
            });
        }
        order.finish(&mut |attempt| released.push(attempt.at));
        (released, order.late())
    }

    #[test]
    fn attempts_of_a_second_are_spread_over_it() {
        let times = [(7 * SECOND, true), (8 * SECOND, true), (7 * SECOND, true)];
        let spread = ordered(times, true);
        assert_eq!(spread, (vec![7_000_000, 7_500_000, 8_000_000], 0));
        let together = ordered(times, false);
        assert_eq!(together, (vec![7_000_000, 7_000_000, 8_000_000], 0));
    }

    #[test]
    fn a_late_one_is_decided_at_the_time_that_it_is() {
        let times = [5, 15, 16, 4].map(|second| (second * SECOND, false));
        let (released, late) = ordered(times, true);
        let expected = [5, 6, 15, 16].map(|second| second * SECOND);
        assert_eq!((released, late), (expected.to_vec(), 1));
    }

    /// The seconds of released attempts, and the number that came too late.
    fn decided_while(seconds: &[u64]) -> (Vec<u64>, u64) {
        let mut order = Reordering::new(Duration::from_secs(10), false);
        let mut released = Vec::new();
        for second in seconds {
            order.push(attempt(second * SECOND, true), &mut |attempt| {
                released.push(attempt.at / SECOND);
            });
        }
        (released, order.late())
    }

    #[test]
    fn a_few_that_are_ahead_wait_for_the_log() {
        let few = [9_000; AHEAD - 1];
        let seconds = [&[100, 101][..], &few, &[102], &few, &[103, 112, 113]].concat();
        assert_eq!(decided_while(&seconds), (vec![100, 101, 102], 0));
        // The log has a gap; one line is even further ahead.
        let gap: Vec<u64> = (0..AHEAD as u64)
            .map(|second| 5_000 + second % 10)
            .collect();
        let seconds = [&[100, 101][..], &gap[1..], &[9_000], &[5_000, 5_010, 5_011]].concat();
        let (times, late) = decided_while(&seconds);
        assert_eq!((&times[..3], late), (&[100, 101, 5_000][..], 0));
        assert!(times.iter().all(|second| *second < 5_002), "{times:?}");
    }

    /// Each line is ahead of the window.
    #[test]
    fn a_sparse_log_advances() {
        let seconds: Vec<u64> = (0..200).map(|number| 1_000 + 60 * number).collect();
        let (times, late) = decided_while(&seconds);
        assert_eq!((times.len(), late), (200 - AHEAD, 0));
    }

    #[test]
    fn large_attempts_wait_in_less_number() {
        let mut order = Reordering::new(Duration::from_secs(10), true);
        let mut decided = 0;
        for number in 0..1_000_u64 {
            let large = Attempt {
                bytes: 1 << 20,
                ..attempt(SECOND * 100 + SECOND * number / 500, false)
            };
            order.push(large, &mut |_| decided += 1);
            assert!(order.waiting <= MOST_BYTES + (1 << 20));
        }
        assert!(decided > 400, "{decided}");
    }

    #[test]
    fn attempts_of_several_files_take_turns_in_a_second() {
        let mut order = Reordering::new(Duration::from_secs(10), true);
        let mut released = Vec::new();
        let mut decide = |attempt: Attempt| released.push((attempt.source, attempt.at % SECOND));
        for source in [0, 0, 0, 0, 1, 1] {
            let attempt = Attempt {
                source,
                ..attempt(7 * SECOND, true)
            };
            order.push(attempt, &mut decide);
        }
        order.finish(&mut decide);
        let expected = [
            (0, 0),
            (1, 166_666),
            (0, 333_333),
            (0, 500_000),
            (1, 666_666),
            (0, 833_333),
        ];
        assert_eq!(released, expected);
    }

    proptest! {
        /// Attempts shuffled within the window are released in order, also if clocks jump.
        #[test]
        fn shuffled_within_the_window_is_sorted(
            gaps in proptest::collection::vec((0..3_000_000_u64, 0..4_000_000_u64), 1..200),
            strays in proptest::collection::vec((any::<prop::sample::Index>(), 20 * SECOND..4_000 * SECOND), 0..6),
        ) {
            let mut at = 1_000_000_000;
            let mut times = Vec::new();
            for (gap, lag) in gaps {
                at += gap;
                times.push((at, at + lag));
            }
            // Sorted by their ends, as servers write them.
            times.sort_by_key(|(_, end)| *end);
            for (place, by) in strays {
                let place = place.index(times.len());
                times.insert(place, (times[place].0 + by, 0));
            }
            let mut sorted: Vec<u64> = times.iter().map(|(at, _)| *at).collect();
            sorted.sort_unstable();
            let (released, late) = ordered(times.into_iter().map(|(at, _)| (at, false)), true);
            prop_assert_eq!(late, 0);
            prop_assert_eq!(released, sorted);
        }
    }
}
