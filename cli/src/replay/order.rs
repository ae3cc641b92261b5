//! The order of attempts: servers write lines when requests end, and many with whole seconds only.

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;

use super::entry::Attempt;

/// How attempts are placed whose times are whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// They are spread evenly over their second, in the order of their lines.
    Even,
    /// All of a second come at its first instant.
    None,
}

const SECOND: u64 = 1_000_000;

/// The most attempts that wait for earlier ones.
const MOST: usize = 1_000_000;

/// Attempts that wait until no earlier one can come, by their second.
pub(super) struct Order {
    seconds: BTreeMap<u64, Vec<Attempt>>,
    waiting: usize,
    /// How many seconds an attempt may come late.
    window: u64,
    newest: u64,
    /// No second before this one waits any more.
    done: u64,
    spread: Spread,
    late: u64,
}

impl Order {
    pub(super) fn new(window: Duration, spread: Spread) -> Self {
        Self {
            seconds: BTreeMap::new(),
            waiting: 0,
            window: window.as_secs() + u64::from(window.subsec_nanos() > 0),
            newest: 0,
            done: 0,
            spread,
            late: 0,
        }
    }

    /// Attempts that came too late to be put in order: they are decided at the time that it is then.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    pub(super) fn push(&mut self, mut attempt: Attempt, decide: &mut impl FnMut(Attempt)) {
        let second = attempt.at / SECOND;
        if second < self.done {
            self.late += 1;
            attempt.at = self.done * SECOND;
            return decide(attempt);
        }
        self.newest = self.newest.max(second);
        self.waiting += 1;
        self.seconds.entry(second).or_default().push(attempt);
        while self.waiting > MOST
            || self
                .first()
                .is_some_and(|first| first + self.window < self.newest)
        {
            self.release(decide);
        }
    }

    pub(super) fn finish(&mut self, decide: &mut impl FnMut(Attempt)) {
        while !self.seconds.is_empty() {
            self.release(decide);
        }
    }

    fn first(&self) -> Option<u64> {
        self.seconds.first_key_value().map(|(second, _)| *second)
    }

    /// Lets go of the attempts of the first second.
    fn release(&mut self, decide: &mut impl FnMut(Attempt)) {
        let Some((second, mut attempts)) = self.seconds.pop_first() else {
            return;
        };
        self.waiting -= attempts.len();
        self.done = second + 1;
        self.place(second, &mut attempts);
        attempts.into_iter().for_each(decide);
    }

    fn place(&self, second: u64, attempts: &mut Vec<Attempt>) {
        if self.spread == Spread::Even {
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

/// Brings attempts of a second into an order in which those of each file are spread evenly among all.
fn mix(attempts: &mut Vec<Attempt>) {
    // How many each file has, and how many of them were placed.
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
    use proptest::prelude::*;
    use tower_ratelimit::Key;

    use super::*;

    fn attempt(at: u64, is_whole: bool) -> Attempt {
        Attempt {
            at,
            is_whole,
            status: 200,
            source: 0,
            key: Key::global(),
            request: None,
        }
    }

    fn ordered(times: impl IntoIterator<Item = (u64, bool)>, spread: Spread) -> (Vec<u64>, u64) {
        let mut order = Order::new(Duration::from_secs(10), spread);
        let mut told = Vec::new();
        for (at, is_whole) in times {
            order.push(attempt(at, is_whole), &mut |attempt| told.push(attempt.at));
        }
        order.finish(&mut |attempt| told.push(attempt.at));
        (told, order.late())
    }

    #[test]
    fn attempts_of_a_second_are_spread_over_it() {
        let times = [(7 * SECOND, true), (8 * SECOND, true), (7 * SECOND, true)];
        let spread = ordered(times, Spread::Even);
        assert_eq!(spread, (vec![7_000_000, 7_500_000, 8_000_000], 0));
        let together = ordered(times, Spread::None);
        assert_eq!(together, (vec![7_000_000, 7_000_000, 8_000_000], 0));
    }

    #[test]
    fn a_late_one_is_decided_at_the_time_that_it_is() {
        let times = [5, 30, 4].map(|second| (second * SECOND, false));
        let (told, late) = ordered(times, Spread::Even);
        assert_eq!((told, late), (vec![5_000_000, 6_000_000, 30_000_000], 1));
    }

    #[test]
    fn attempts_of_several_files_take_turns_in_a_second() {
        let mut order = Order::new(Duration::from_secs(10), Spread::Even);
        let mut told = Vec::new();
        let mut tell = |attempt: Attempt| told.push((attempt.source, attempt.at % SECOND));
        for source in [0, 0, 0, 0, 1, 1] {
            let attempt = Attempt {
                source,
                ..attempt(7 * SECOND, true)
            };
            order.push(attempt, &mut tell);
        }
        order.finish(&mut tell);
        let expected = [
            (0, 0),
            (1, 166_666),
            (0, 333_333),
            (0, 500_000),
            (1, 666_666),
            (0, 833_333),
        ];
        assert_eq!(told, expected);
    }

    proptest! {
        /// Attempts that are shuffled within the window come out as if they had been sorted.
        #[test]
        fn shuffled_within_the_window_is_sorted(
            gaps in proptest::collection::vec((0..3_000_000_u64, 0..4_000_000_u64), 1..200),
        ) {
            let mut at = 1_000_000_000;
            let mut times = Vec::new();
            for (gap, lag) in gaps {
                at += gap;
                times.push((at, at + lag));
            }
            let mut sorted: Vec<u64> = times.iter().map(|(at, _)| *at).collect();
            sorted.sort_unstable();
            // Written at their ends.
            times.sort_by_key(|(_, end)| *end);
            let (told, late) = ordered(times.into_iter().map(|(at, _)| (at, false)), Spread::Even);
            prop_assert_eq!(late, 0);
            prop_assert_eq!(told, sorted);
        }
    }
}
