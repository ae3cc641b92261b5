//! The sliding log: the time of each unit that was admitted in the trailing period.

use super::{Refund, RefundOf, Verdict, log_entries::Log};
use crate::decision::{Marks, Status};
use crate::quota::Quota;

/// The most units at one time in the stored format.
const MOST_OF_ENTRY: u64 = (1 << 24) - 1;

/// A log of the admitted units of the trailing period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlidingLog {
    pub limit: u64,
    period: u64,
}

impl SlidingLog {
    pub(super) const fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            limit: quota.capacity() + quota.extra(),
            period: quota.period_nanos(),
        }
    }

    /// The number of entries that have left (now − period, now]. A later time, from before the clock
    /// stepped back, counts as now.
    fn expired(&self, log: &Log, now: u64) -> usize {
        log.partition_point(|at| self.is_expired(at, now))
    }

    /// The units in use.
    pub(super) fn used(&self, log: &Log, now: u64) -> u64 {
        log.total() - log.units_before(self.expired(log, now))
    }

    fn is_expired(&self, at: u64, now: u64) -> bool {
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

    pub(super) fn reset_after(&self, log: &Log, now: u64) -> u64 {
        let newest = log.newest().filter(|at| !self.is_expired(*at, now));
        newest.map_or(0, |at| self.leaves_after(at, now))
    }

    /// Adds `cost`, up to the limit and no further.
    pub(super) fn charge(&self, log: &mut Log, now: u64, cost: u64) {
        let count = cost.min(self.available(log, now));
        self.tidy(log, now);
        log.note(now, count);
    }

    /// Removes the entry of the charge, or the newest ones. An entry that has left the period is not
    /// refunded: that would allow more than the limit.
    pub(super) fn refund(&self, log: &mut Log, now: u64, refund: Refund) {
        self.tidy(log, now);
        match refund.of {
            RefundOf::At(charged_at, _) => log.remove_at(charged_at, refund.cost),
            RefundOf::Newest => log.remove_newest(refund.cost),
        }
    }

    /// Removes entries that have left the period, if they are many: each read of them takes time.
    pub(super) fn forget_much(&self, log: &mut Log, now: u64, most_kept: usize) {
        if self.expired(log, now) > most_kept {
            self.tidy(log, now);
        }
    }

    /// Removes entries that have left the period, and moves times later than now to now.
    fn tidy(&self, log: &mut Log, now: u64) {
        log.forget(self.expired(log, now));
        log.move_back_to(now);
    }

    /// Moves times later than now to now, after the clock stepped back.
    pub(super) fn clamp(&self, log: &mut Log, now: u64) {
        if log.newest().is_some_and(|newest| newest > now) {
            self.tidy(log, now);
        }
    }

    /// Adds units of a lease, as spent at `at` or at the newest entry, whichever is later. Units that
    /// have left the period since are dropped.
    pub(super) fn settle(&self, log: &mut Log, now: u64, at: u64, units: u64) {
        self.tidy(log, now);
        let at = log.newest().map_or(at, |newest| newest.max(at));
        if !self.is_expired(at, now) {
            log.note(
                at,
                units.min(MOST_OF_ENTRY - log.noted_at(at).min(MOST_OF_ENTRY)),
            );
        }
    }

    /// Adds `more` units, even beyond the limit; removes the newest if that is negative.
    pub(super) fn moved(&self, log: &mut Log, now: u64, more: i64) {
        if more > 0 {
            self.settle(log, now, now, more.unsigned_abs());
        } else {
            log.remove_newest(more.unsigned_abs());
        }
    }

    /// A log that has this status: one unit is free after the effective window, and all are after the reset. In excess all
    /// of the soft share counts as used.
    pub(super) fn in_short(&self, now: u64, status: &Status, extra: u64) -> Log {
        let mut log = Log::FRESH;
        let beyond = if status.is(Marks::EXCESS) { extra } else { 0 };
        let used = self.limit.saturating_sub(status.left) + beyond;
        let first = (used + 1).saturating_sub(self.limit).min(used);
        for (units, left) in [(first, status.window), (used - first, status.reset_after)] {
            let left = left.min(status.reset_after).min(self.period);
            log.note((now + left).saturating_sub(self.period), units);
        }
        log
    }
}
