//! The reservations that this process has committed, in bounded memory: none gives units back twice.

use std::collections::BTreeSet;

/// The most reservations remembered, in 13 MB.
pub(super) const MOST: usize = 1 << 18;

/// How long a reservation can give units back, in milliseconds.
pub(super) const LONGEST: u64 = 60 * 60 * 1_000;

/// The number of a reservation, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReservationId {
    /// Milliseconds since 1970.
    pub(super) reserved_at: u64,
    pub(super) process: u64,
    pub(super) number: u64,
}

/// The newest reservations that were committed.
#[derive(Debug)]
pub(super) struct CommittedIds {
    committed: BTreeSet<ReservationId>,
    /// Reservations up to this time may have been committed and forgotten.
    forgotten_until: Option<u64>,
    most: usize,
}

/// Whether a commit is the first of its reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    First,
    Repeated,
    /// It may be the first.
    Late,
}

impl CommittedIds {
    /// Remembers at most this many.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            committed: BTreeSet::new(),
            forgotten_until: None,
            most,
        }
    }

    /// Adds a reservation, at this time.
    pub(super) fn commit(&mut self, id: ReservationId, now: u64) -> Commit {
        while let Some(oldest) = self.committed.first()
            && is_late(oldest.reserved_at, now)
        {
            self.forget_oldest();
        }
        let ReservationId { reserved_at, .. } = id;
        if self.committed.contains(&id) {
            return Commit::Repeated;
        }
        let is_forgotten = self
            .forgotten_until
            .is_some_and(|until| reserved_at <= until);
        if is_forgotten || is_late(reserved_at, now) {
            return Commit::Late;
        }
        self.committed.insert(id);
        if self.committed.len() > self.most {
            self.forget_oldest();
        }
        Commit::First
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.committed.pop_first() {
            self.forgotten_until = self.forgotten_until.max(Some(oldest.reserved_at));
        }
    }
}

const fn is_late(reserved_at: u64, now: u64) -> bool {
    now.saturating_sub(reserved_at) > LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(reserved_at: u64, number: u64) -> ReservationId {
        ReservationId {
            reserved_at,
            process: 9,
            number,
        }
    }

    #[test]
    fn reservation_is_committed_once() {
        let mut ids = CommittedIds::new(MOST);
        assert_eq!(ids.commit(id(5, 1), 6), Commit::First);
        assert_eq!(ids.commit(id(5, 1), 7), Commit::Repeated);
        assert_eq!(ids.commit(id(5, 2), 7), Commit::First);
        assert_eq!(ids.commit(id(4, 1), 7), Commit::First);
    }

    #[test]
    fn full_memory_refuses_what_it_may_have_forgotten() {
        let mut ids = CommittedIds::new(2);
        for (reserved_at, expected) in [
            (10, Commit::First),
            (20, Commit::First),
            (30, Commit::First),
            // The first one is forgotten.
            (10, Commit::Late),
            (9, Commit::Late),
            (11, Commit::First),
            (11, Commit::Late),
            (20, Commit::Repeated),
            (30, Commit::Repeated),
        ] {
            let commit = ids.commit(id(reserved_at, 7), 40);
            assert_eq!(commit, expected, "{reserved_at}");
            assert!(ids.committed.len() <= 2);
        }
    }

    #[test]
    fn full_memory_takes_16_mb_at_most() {
        let mut ids = CommittedIds::new(MOST);
        let used = allocation_counter::measure(|| {
            for at in 0..2 * MOST as u64 {
                assert_eq!(ids.commit(id(at, at), at), Commit::First);
            }
        });
        assert_eq!(ids.committed.len(), MOST);
        assert!(used.bytes_max < 16_000_000, "{used:?}");
    }

    #[test]
    fn reservation_of_more_than_an_hour_ago_is_late_also_when_the_clock_steps_back() {
        let mut ids = CommittedIds::new(MOST);
        assert_eq!(ids.commit(id(1_000, 1), 1_000 + LONGEST), Commit::First);
        assert_eq!(ids.commit(id(2_000, 2), 2_001 + LONGEST), Commit::Late);
        assert_eq!(ids.commit(id(1_000, 1), 2_001 + LONGEST), Commit::Late);
        assert!(ids.committed.is_empty());
        assert_eq!(ids.commit(id(1_000, 1), 1_500), Commit::Late);
        // Clocks of instances differ.
        assert_eq!(ids.commit(id(9_000, 3), 8_000), Commit::First);
    }
}
