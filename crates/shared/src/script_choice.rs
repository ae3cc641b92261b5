//! The choice of a script: subjects whose values the specialized scripts cannot read.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::hashed_key_names::SubjectName;

/// The number of places for subjects, chosen by hash: each contains the last subject.
const PLACES: usize = 512;

/// The unit of time: a subject stays for one or two of them.
const SPAN: Duration = Duration::from_secs(60);

/// The bits of a place that contain the time.
const SPAN_BITS: u64 = 0xffff;

/// Subjects whose values have more than the specialized scripts can read, such as those that nodes of
/// another configuration have written. Calls about them go to the general script at once: otherwise
/// each decision would take two round trips, and the deadline may not allow that.
#[derive(Debug)]
pub(super) struct ComplexValues {
    /// For each place the upper bits of a subject's hash, and the time at which it was recorded, in
    /// spans since the start.
    places: Box<[AtomicU64]>,
    began_at: Instant,
}

impl ComplexValues {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            began_at: now,
        }
    }

    /// Records that a specialized script could not read the subject's value.
    pub(super) fn record(&self, subject: &SubjectName, now: Instant) {
        let entry = subject.hash() & !SPAN_BITS | self.span(now);
        self.place(subject).store(entry, Ordering::Relaxed);
    }

    /// Whether the subject was recorded recently.
    pub(super) fn contains(&self, subject: &SubjectName, now: Instant) -> bool {
        let entry = self.place(subject).load(Ordering::Relaxed);
        if entry & !SPAN_BITS != subject.hash() & !SPAN_BITS {
            return false;
        }
        self.span(now).wrapping_sub(entry) & SPAN_BITS <= 1
    }

    /// The time in spans. Begins with two: an unused place, with zero, is too old.
    fn span(&self, now: Instant) -> u64 {
        let spans = now.saturating_duration_since(self.began_at).as_secs() / SPAN.as_secs();
        (2 + spans) & SPAN_BITS
    }

    fn place(&self, subject: &SubjectName) -> &AtomicU64 {
        &self.places[subject.hash() as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::{super::hashed_key_names::SubjectNames, *};

    #[test]
    fn a_subject_stays_for_one_span_or_two() {
        let names = SubjectNames::new(Some(1));
        let now = Instant::now();
        let complex = ComplexValues::new(now);
        let (alice, bob) = (names.named("alice"), names.named("bob"));
        assert!(!complex.contains(&alice, now));
        for begin in [now, now + SPAN * 7, now + SPAN * 0xffff] {
            complex.record(&alice, begin);
            assert!(complex.contains(&alice, begin) && complex.contains(&alice, begin + SPAN));
            assert!(!complex.contains(&alice, begin + SPAN * 2));
            assert!(!complex.contains(&bob, begin));
        }
    }

    #[test]
    fn only_the_last_subject_of_a_place_stays() {
        let names = SubjectNames::new(Some(1));
        let now = Instant::now();
        let complex = ComplexValues::new(now);
        let subjects: Vec<_> = (0..10_000)
            .map(|at| names.named(&format!("{at}")))
            .collect();
        let known = |complex: &ComplexValues| {
            subjects
                .iter()
                .filter(|one| complex.contains(one, now))
                .count()
        };
        assert_eq!(known(&complex), 0);
        for subject in &subjects {
            complex.record(subject, now);
            assert!(complex.contains(subject, now));
        }
        assert_eq!(known(&complex), PLACES);
    }
}
