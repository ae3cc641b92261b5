//! The states of counters as texts, numbers and bytes in stores.

use super::{
    View,
    compiled_quota::{Meter, Rate},
    fixed_window::Window,
    sliding_log::Log,
    sliding_window::Slices,
    state::State,
};
use crate::quota::{MAX_COUNT, MAX_REFILL_NANOS};

/// The bytes of a log entry: seven for the microsecond, three for the count.
const ENTRY: usize = 10;

/// The most entries that a stored log keeps after they have left the period.
const MOST_KEPT: usize = 256;

const MOST_DIGITS: usize = 16;

impl Meter {
    /// Parses a state. If it is a log, its entries are removed from the front of `bytes`. `None` if the
    /// text is not a state.
    pub fn read(&self, text: &str, bytes: &mut &[u8]) -> Option<State> {
        match &self.rate {
            Rate::Bucket(_) => instant(text).map(State::Instant),
            Rate::FixedWindow(_) => window(text).map(State::Window),
            Rate::SlidingWindow(window) => slices(text, window.slices),
            Rate::SlidingLog(_) => log(text, bytes),
        }
    }

    /// The state in a script's reply at `now`; `None` for numbers that no script sends, and for a log: its state is in no reply.
    pub fn state_of_numbers(
        &self,
        now: u64,
        mut next: impl FnMut() -> Option<u64>,
    ) -> Option<State> {
        let mut next = || next().filter(|number| *number <= MAX_COUNT);
        match &self.rate {
            Rate::Bucket(bucket) => {
                let level = next()?.checked_mul(1_000)?.checked_add(next()?)?;
                let tat = bucket.fresh_until(now).saturating_add(level);
                (level <= MAX_REFILL_NANOS).then_some(State::Instant(tat))
            }
            Rate::FixedWindow(_) => {
                let (index, count) = (next()?, next()?);
                Some(State::Window(Window { index, count }))
            }
            Rate::SlidingWindow(window) => {
                let newest = next()?;
                let counts = (0..=window.slices).map(|_| next());
                let counts = counts.collect::<Option<_>>()?;
                Some(State::Slices(Box::new(Slices { newest, counts })))
            }
            Rate::SlidingLog(_) => None,
        }
    }

    /// Nanoseconds until a stored state is as good as none. At most a slice longer than until it is fresh.
    pub fn lasts(&self, state: &State, now: u64, view: View<'_>) -> u64 {
        let Rate::SlidingWindow(window) = &self.rate else {
            return self.reset_after(state, now, view);
        };
        window.lasts(self.seen(state, now, view).slices(), now)
    }

    /// Writes a state as text, and the entries of a log to `bytes`.
    pub fn write(&self, state: &State, bytes: &mut Vec<u8>) -> String {
        match &self.rate {
            Rate::Bucket(_) => instant_text(*state.instant()),
            Rate::FixedWindow(_) => window_text(state.window()),
            Rate::SlidingWindow(_) => slices_text(state.slices()),
            Rate::SlidingLog(_) => {
                let from = bytes.len();
                write_entries(state.log(), bytes);
                format!("{}:{}", state.log().total(), bytes.len() - from)
            }
        }
    }

    /// Whether a state keeps its text until it changes, as that of a token bucket does, even if it has
    /// been full for long.
    pub const fn keeps_text(&self) -> bool {
        matches!(&self.rate, Rate::Bucket(bucket) if !bucket.is_queue())
    }

    /// Whether states have bytes in addition to their text.
    pub const fn has_bytes(&self) -> bool {
        matches!(self.rate, Rate::SlidingLog(_))
    }

    /// Removes entries of a log that have left its period, if they are many.
    pub fn forget_much(&self, state: &mut State, now: u64) {
        if let (Rate::SlidingLog(sliding), State::Log(log)) = (&self.rate, state) {
            sliding.forget_much(log, now, MOST_KEPT);
        }
    }
}

/// A number of at most `most` digits, as the scripts read it: beyond 2^53 it is rounded to a double.
fn number(text: &str, most: usize) -> Option<u64> {
    let is_number = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = is_number.then(|| text.parse().ok())??;
    Some(number as f64 as u64)
}

/// Parses an instant to nanoseconds.
pub fn instant(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (micros, rest) = text.split_at_checked(text.len().checked_sub(3)?)?;
    let nanos = number(micros, MOST_DIGITS)?.checked_mul(1_000)?;
    nanos.checked_add(number(rest, 3)?)
}

pub fn instant_text(nanos: u64) -> String {
    match nanos {
        0 => "0".to_owned(),
        nanos => format!("{}{:03}", nanos / 1_000, nanos % 1_000),
    }
}

fn window(text: &str) -> Option<Window> {
    if text == "0" {
        return Some(Window::default());
    }
    let (index, count) = text.split_once(':')?;
    Some(Window {
        index: number(index, MOST_DIGITS)?,
        count: number(count, MOST_DIGITS)?,
    })
}

fn window_text(Window { index, count }: Window) -> String {
    format!("{index}:{count}")
}

fn slices_text(Slices { newest, counts }: &Slices) -> String {
    let counts = counts.iter().map(|count| format!(":{count}"));
    counts.fold(newest.to_string(), |text, count| text + &count)
}

fn slices(text: &str, slices: usize) -> Option<State> {
    let mut numbers = text.split(':').filter(|number| !number.is_empty());
    let newest = number(numbers.next()?, MOST_DIGITS)?;
    let counts = numbers.map(|count| number(count, MOST_DIGITS));
    let counts: Vec<u64> = counts.collect::<Option<_>>()?;
    let is_whole = counts.is_empty() || counts.len() == slices + 1;
    is_whole.then(|| State::Slices(Box::new(Slices { newest, counts })))
}

/// Parses a log. The entries must be in order, not empty, and sum to the total in the text.
fn log(text: &str, bytes: &mut &[u8]) -> Option<State> {
    let (total, length) = text.split_once(':')?;
    let (total, length) = (number(total, 15)?, number(length, 9)?);
    let (entries, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    let mut log = Log::FRESH;
    let (entries, left) = entries.as_chunks::<ENTRY>();
    for entry in entries {
        let of = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let at = of(&entry[..7]).checked_mul(1_000)?;
        let count = of(&entry[7..]);
        if count == 0 || log.newest().is_some_and(|newest| newest >= at) {
            return None;
        }
        log.note(at, count);
    }
    *bytes = rest;
    (left.is_empty() && log.total() == total).then(|| State::Log(Box::new(log)))
}

/// Writes the entries of a log. Entries of one time are joined.
fn write_entries(log: &Log, bytes: &mut Vec<u8>) {
    let mut entries = log.entries().filter(|(_, count)| *count > 0).peekable();
    while let Some((at, mut count)) = entries.next() {
        while let Some((_, more)) = entries.next_if(|(next, _)| *next == at) {
            count += more;
        }
        bytes.extend_from_slice(&(at / 1_000).to_be_bytes()[1..]);
        bytes.extend_from_slice(&count.to_be_bytes()[5..]);
    }
}
