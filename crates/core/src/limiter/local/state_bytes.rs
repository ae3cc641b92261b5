//! The bytes of one state in a state file.

use crate::{
    algorithm::{Log, Slices, State, Window},
    clock::ClockReading,
    little_endian::{push_u32, push_u64, take_u8, take_u32, take_u64},
};

const INSTANT: u8 = 0;
const WINDOW: u8 = 1;
const SLICES: u8 = 2;
const LOG: u8 = 3;

/// The largest index or count that arithmetic accepts without an overflow. Sums of instants saturate.
const MOST: u64 = u64::MAX >> 2;

/// The most units of a log: a limit of 65,536, and ten times as many by a soft share.
const MOST_OF_LOG: u64 = 1 << 20;

const MOST_SLICES: u32 = 1_001;

/// The bytes of a state, which do not depend on its quota.
impl State {
    /// Writes the state. Instants are those of the wall, since a clock that does not step is another one in
    /// the next process.
    pub(super) fn push_to(&self, to: &mut Vec<u8>, time: ClockReading) {
        match self {
            Self::Instant(instant) => {
                to.push(INSTANT);
                push_u64(to, time.wall_of(*instant));
            }
            Self::Window(Window { index, count }) => {
                to.push(WINDOW);
                push_u64(to, *index);
                push_u64(to, *count);
            }
            Self::Slices(slices) => {
                to.push(SLICES);
                push_u64(to, slices.newest);
                push_u32(to, slices.counts.len() as u32);
                slices.counts.iter().for_each(|count| push_u64(to, *count));
            }
            Self::Log(log) => {
                to.push(LOG);
                let entries = log.entries().filter(|(_, count)| *count > 0);
                push_u32(to, entries.clone().count() as u32);
                for (at, count) in entries {
                    push_u64(to, time.wall_of(at));
                    push_u64(to, count);
                }
            }
        }
    }

    /// Removes a state from the front; `None` if the bytes are none.
    pub(super) fn take_from(from: &mut &[u8], time: ClockReading) -> Option<Self> {
        match take_u8(from)? {
            INSTANT => {
                let instant = take_u64(from)?;
                Some(Self::Instant(time.of_wall(instant)))
            }
            WINDOW => {
                let (index, count) = (small(from)?, small(from)?);
                Some(Self::Window(Window { index, count }))
            }
            SLICES => {
                let (newest, length) = (small(from)?, take_u32(from)?);
                let counts = (0..length.min(MOST_SLICES)).map(|_| {
                    // The sum of all counts must not overflow either.
                    small(from).filter(|count| *count <= MOST / u64::from(MOST_SLICES))
                });
                let counts: Vec<u64> = counts.collect::<Option<_>>()?;
                let is_whole = counts.len() == length as usize;
                is_whole.then(|| Self::Slices(Box::new(Slices { newest, counts })))
            }
            LOG => log(from, time),
            _ => None,
        }
    }
}

fn small(from: &mut &[u8]) -> Option<u64> {
    take_u64(from).filter(|number| *number <= MOST)
}

fn log(from: &mut &[u8], time: ClockReading) -> Option<State> {
    let mut log = Log::FRESH;
    for _ in 0..take_u32(from)? {
        let (at, count) = (time.of_wall(take_u64(from)?), small(from)?);
        let is_ordered = log.newest().is_none_or(|newest| newest <= at);
        if !is_ordered || count == 0 || log.total() + count > MOST_OF_LOG {
            return None;
        }
        log.note(at, count);
    }
    Some(State::Log(Box::new(log)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    const TIME: ClockReading = ClockReading::alike(Timestamp::from_secs(1_767_225_600));

    fn states() -> [State; 5] {
        let mut log = Log::FRESH;
        (0..600).for_each(|at| log.note(at / 2, 1 + at % 3));
        let slices = Slices {
            newest: 7,
            counts: vec![1, 0, 3],
        };
        [
            State::FRESH,
            State::Instant(1_767_225_600_000_000_001),
            State::Window(Window { index: 3, count: 4 }),
            State::Slices(Box::new(slices)),
            State::Log(Box::new(log)),
        ]
    }

    #[test]
    fn states_are_read_as_they_were_written_and_not_if_cut() {
        for state in states() {
            let mut bytes = Vec::new();
            state.push_to(&mut bytes, TIME);
            for end in 0..bytes.len() {
                assert_eq!(
                    State::take_from(&mut &bytes[..end], TIME),
                    None,
                    "{state:?}"
                );
            }
            bytes.push(9);
            let rest = &mut bytes.as_slice();
            assert_eq!(State::take_from(rest, TIME), Some(state));
            assert_eq!(*rest, [9]);
        }
    }

    #[test]
    fn states_that_would_overflow_are_none() {
        let huge = u64::MAX.to_le_bytes();
        for kind in 1..=4 {
            let mut bytes = vec![kind];
            (0..2_000).for_each(|_| bytes.extend(huge));
            assert_eq!(State::take_from(&mut bytes.as_slice(), TIME), None);
        }
    }
}
