//! The sliding log: the time of each unit that was admitted in the trailing period.

use super::{Charged, Refund, Verdict, log::Log};
use crate::quota::Quota;

/// The most units that stores keep for one time.
#[cfg(feature = "redis")]
const MOST_OF_ENTRY: u64 = (1 << 24) - 1;

/// The times of what was admitted in the trailing period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlidingLog {
    limit: u64,
    period: u64,
}

impl SlidingLog {
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            limit: quota.capacity() + quota.extra(),
            period: quota.period_nanos(),
        }
    }

    /// How many entries have left (now − period, now]. A time later than now, which a clock that
    /// stepped back left, counts as now.
    fn gone(&self, log: &Log, now: u64) -> usize {
        log.partition_point(|at| self.is_gone(at, now))
    }

    /// The units that count.
    pub(super) fn used(&self, log: &Log, now: u64) -> u64 {
        log.total() - log.units_before(self.gone(log, now))
    }

    fn is_gone(&self, at: u64, now: u64) -> bool {
        at.saturating_add(self.period) <= now
    }

    fn leaves_after(&self, at: u64, now: u64) -> u64 {
        at.min(now).saturating_add(self.period) - now
    }

    pub(super) fn verdict(&self, log: &Log, now: u64, cost: u64) -> Verdict {
        let Some(room) = self.limit.checked_sub(cost) else {
            return Verdict::Never;
        };
        if cost == 0 || self.used(log, now) <= room {
            return Verdict::FITS;
        }
        let blocking = log.first_after(log.total().saturating_sub(room));
        Verdict::After(blocking.map_or(0, |at| self.leaves_after(at, now)))
    }

    pub(super) fn available(&self, log: &Log, now: u64) -> u64 {
        self.limit.saturating_sub(self.used(log, now))
    }

    /// The time until the newest entry leaves.
    pub(super) fn reset_after(&self, log: &Log, now: u64) -> u64 {
        let newest = log.newest().filter(|at| !self.is_gone(*at, now));
        newest.map_or(0, |at| self.leaves_after(at, now))
    }

    /// Notes `cost`, up to the limit and no further.
    pub(super) fn charge(&self, log: &mut Log, now: u64, cost: u64) {
        let count = cost.min(self.available(log, now));
        self.tidy(log, now);
        log.note(now, count);
    }

    /// Takes back the entry of the charge, or the newest ones. An entry that has left the window by
    /// itself is not given back a second time: that would make room for more than the limit.
    pub(super) fn refund(&self, log: &mut Log, now: u64, refund: Refund) {
        self.tidy(log, now);
        match refund.of {
            Charged::At(charged_at, _) => log.remove_at(charged_at, refund.cost),
            Charged::Newest => log.remove_newest(refund.cost),
        }
    }

    /// Forgets what has left the window where that is much: to read it again and again takes time.
    #[cfg(feature = "redis")]
    pub(super) fn forget_much(&self, log: &mut Log, now: u64, most_kept: usize) {
        if self.gone(log, now) > most_kept {
            self.tidy(log, now);
        }
    }

    /// Forgets what has left the window, and moves times later than now to now.
    fn tidy(&self, log: &mut Log, now: u64) {
        log.forget(self.gone(log, now));
        log.move_back_to(now);
    }

    /// Moves times that a clock that stepped back left ahead of now to now.
    pub(super) fn clamp(&self, log: &mut Log, now: u64) {
        if log.newest().is_some_and(|newest| newest > now) {
            self.tidy(log, now);
        }
    }

    /// Notes units that a lease reserved, as spent at `at`: no earlier than the newest entry, and
    /// none that have left the window since.
    #[cfg(feature = "redis")]
    pub(super) fn settle(&self, log: &mut Log, now: u64, at: u64, units: u64) {
        self.tidy(log, now);
        let at = log.newest().map_or(at, |newest| newest.max(at));
        if !self.is_gone(at, now) {
            log.note(
                at,
                units.min(MOST_OF_ENTRY - log.noted_at(at).min(MOST_OF_ENTRY)),
            );
        }
    }
}
