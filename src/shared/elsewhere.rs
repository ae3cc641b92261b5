//! Subjects that other nodes lease, of which the scripts for few operations know nothing.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::subject::SubjectName;

/// How long the general script is asked about such a subject before another one is tried again.
const MEMORY: Duration = Duration::from_secs(1);

/// More subjects than this at a time push each other out.
const SLOTS: usize = 256;

/// The subjects of which a script has lately said that it does not know them, each by a part of its
/// hash and the time until which it is remembered. A subject that is forgotten, or taken for another,
/// costs a call more, or a slower one.
#[derive(Debug)]
pub(super) struct LeasedElsewhere {
    start: Instant,
    slots: Box<[AtomicU64]>,
}

impl LeasedElsewhere {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            slots: iter::repeat_with(AtomicU64::default).take(SLOTS).collect(),
        }
    }

    pub(super) fn note(&self, subject: &SubjectName, now: Instant) {
        let until = self.millis(now + MEMORY);
        let (slot, tag) = self.slot(subject);
        slot.store(tag | until, Ordering::Relaxed);
    }

    pub(super) fn knows(&self, subject: &SubjectName, now: Instant) -> bool {
        let (slot, tag) = self.slot(subject);
        let known = slot.load(Ordering::Relaxed);
        known & TAG == tag && known & !TAG > self.millis(now)
    }

    /// The milliseconds, for some decades.
    fn millis(&self, at: Instant) -> u64 {
        let millis = at.saturating_duration_since(self.start).as_millis();
        u64::try_from(millis).map_or(!TAG, |millis| millis & !TAG)
    }

    fn slot(&self, subject: &SubjectName) -> (&AtomicU64, u64) {
        let hash = subject.hash();
        (&self.slots[hash as usize % SLOTS], hash & TAG)
    }
}

/// The bits of the hash.
const TAG: u64 = !0 << 40;

#[cfg(test)]
mod tests {
    use super::{super::subject::SubjectNames, *};

    #[test]
    fn subject_is_remembered_for_a_second() {
        let subjects = SubjectNames::new(Some(7));
        let [one, two] = ["one", "two"].map(|name| subjects.named(name));
        let (known, now) = (LeasedElsewhere::new(), Instant::now());
        assert!(!known.knows(&one, now));
        known.note(&one, now);
        assert!(known.knows(&one, now) && !known.knows(&two, now));
        assert!(known.knows(&one, now + MEMORY - Duration::from_millis(2)));
        assert!(!known.knows(&one, now + MEMORY));
    }
}
