use std::collections::VecDeque;

use super::Verdict;
use crate::quota::Quota;

/// The times of what was admitted in the trailing period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlidingLog {
    limit: u64,
    period: u64,
}

/// What was admitted when, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// The sum of all counts, those that have left the window included.
    total: u64,
}

impl Log {
    /// The state of a key that was never seen.
    pub(super) const FRESH: Self = Self {
        entries: VecDeque::new(),
        total: 0,
    };

    /// How many times are kept.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: u64,
    count: u64,
}

impl SlidingLog {
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            limit: quota.capacity() + quota.extra(),
            period: quota.period_nanos(),
        }
    }

    /// How many units lie in (now − period, now]. A time later than now, which a clock that stepped
    /// back left, counts as now.
    fn used(&self, log: &Log, now: u64) -> u64 {
        let gone = log.entries.iter().take_while(|e| self.is_gone(e, now));
        let gone = gone.map(|entry| entry.count).sum::<u64>();
        (log.total - gone).min(self.limit)
    }

    fn is_gone(&self, entry: &Entry, now: u64) -> bool {
        entry.at.saturating_add(self.period) <= now
    }

    fn leaves_after(&self, entry: &Entry, now: u64) -> u64 {
        entry.at.min(now).saturating_add(self.period) - now
    }

    pub(super) fn verdict(&self, log: &Log, now: u64, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        let room = self.limit - cost;
        if cost == 0 || self.used(log, now) <= room {
            return Verdict::FITS;
        }
        let mut left = log.total;
        let blocking = log.entries.iter().find(|entry| {
            left -= entry.count;
            left <= room
        });
        Verdict::After(blocking.map_or(0, |entry| self.leaves_after(entry, now)))
    }

    pub(super) fn available(&self, log: &Log, now: u64) -> u64 {
        self.limit - self.used(log, now)
    }

    /// The time until the newest entry leaves.
    pub(super) fn reset_after(&self, log: &Log, now: u64) -> u64 {
        let newest = log.entries.back().filter(|e| !self.is_gone(e, now));
        newest.map_or(0, |entry| self.leaves_after(entry, now))
    }

    /// Notes `cost`, up to the limit and no further.
    pub(super) fn charge(&self, log: &mut Log, now: u64, cost: u64) {
        let count = cost.min(self.available(log, now));
        self.tidy(log, now);
        log.total += count;
        match log.entries.back_mut() {
            Some(newest) if newest.at == now => newest.count += count,
            _ if count > 0 => log.entries.push_back(Entry { at: now, count }),
            _ => {}
        }
    }

    /// Takes back what was noted at `charged_at`, else the newest. What has left the window by
    /// itself is not given back a second time: that would make room for more than the limit.
    pub(super) fn refund(&self, log: &mut Log, now: u64, cost: u64, charged_at: u64) {
        self.tidy(log, now);
        if charged_at.saturating_add(self.period) <= now {
            return;
        }
        let mut left = cost;
        let from = log.entries.partition_point(|entry| entry.at < charged_at);
        let noted = log.entries.range_mut(from..);
        for entry in noted.take_while(|entry| entry.at == charged_at) {
            left -= entry.take(left);
        }
        for entry in log.entries.iter_mut().rev() {
            if left == 0 {
                break;
            }
            left -= entry.take(left);
        }
        log.total -= cost - left;
        log.entries.retain(|entry| entry.count > 0);
    }

    /// Forgets what has left the window, and moves times later than now to now.
    fn tidy(&self, log: &mut Log, now: u64) {
        while let Some(oldest) = log.entries.front().filter(|e| self.is_gone(e, now)) {
            log.total -= oldest.count;
            log.entries.pop_front();
        }
        for entry in log.entries.iter_mut().rev().take_while(|e| e.at > now) {
            entry.at = now;
        }
    }

    /// Moves times that a clock that stepped back left ahead of now to now.
    pub(super) fn heal(&self, log: &mut Log, now: u64) {
        if log.entries.back().is_some_and(|newest| newest.at > now) {
            self.tidy(log, now);
        }
    }
}

impl Entry {
    /// Takes up to `most`, and says how much it was.
    fn take(&mut self, most: u64) -> u64 {
        let taken = most.min(self.count);
        self.count -= taken;
        taken
    }
}
