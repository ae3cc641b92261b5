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
}

impl Log {
    /// The state of a key that was never seen.
    pub(super) const FRESH: Self = Self {
        entries: VecDeque::new(),
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

    /// What lies in (now − period, now]. A time later than now, which a clock that stepped back
    /// left, counts as now.
    fn kept<'a>(&self, log: &'a Log, now: u64) -> impl DoubleEndedIterator<Item = Entry> + 'a {
        let gone = log
            .entries
            .partition_point(|entry| self.is_gone(entry, now));
        log.entries.range(gone..).map(move |entry| Entry {
            at: entry.at.min(now),
            count: entry.count,
        })
    }

    fn is_gone(&self, entry: &Entry, now: u64) -> bool {
        entry.at.saturating_add(self.period) <= now
    }

    fn used(&self, log: &Log, now: u64) -> u64 {
        let counts = self.kept(log, now).map(|entry| entry.count);
        counts.sum::<u64>().min(self.limit)
    }

    fn leaves_after(&self, entry: Entry, now: u64) -> u64 {
        entry.at.saturating_add(self.period) - now
    }

    pub(super) fn verdict(&self, log: &Log, now: u64, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        let mut used: u64 = self.kept(log, now).map(|entry| entry.count).sum();
        let room = self.limit - cost;
        if cost == 0 || used <= room {
            return Verdict::FITS;
        }
        let mut wait = 0;
        for entry in self.kept(log, now) {
            wait = self.leaves_after(entry, now);
            used -= entry.count;
            if used <= room {
                break;
            }
        }
        Verdict::After(wait)
    }

    pub(super) fn available(&self, log: &Log, now: u64) -> u64 {
        self.limit - self.used(log, now)
    }

    /// The time until the newest entry leaves.
    pub(super) fn reset_after(&self, log: &Log, now: u64) -> u64 {
        let newest = self.kept(log, now).next_back();
        newest.map_or(0, |entry| self.leaves_after(entry, now))
    }

    /// Notes `cost`, up to the limit and no further.
    pub(super) fn charge(&self, log: &mut Log, now: u64, cost: u64) {
        let count = cost.min(self.available(log, now));
        self.tidy(log, now);
        match log.entries.back_mut() {
            Some(newest) if newest.at == now => newest.count += count,
            _ if count > 0 => log.entries.push_back(Entry { at: now, count }),
            _ => {}
        }
    }

    /// Takes back what was noted at `charged_at`, else the newest.
    pub(super) fn refund(&self, log: &mut Log, now: u64, cost: u64, charged_at: u64) {
        self.tidy(log, now);
        let mut left = cost;
        let noted = log.entries.iter_mut().find(|entry| entry.at == charged_at);
        if let Some(entry) = noted {
            left -= take(entry, left);
        }
        for entry in log.entries.iter_mut().rev() {
            left -= take(entry, left);
        }
        log.entries.retain(|entry| entry.count > 0);
    }

    /// Forgets what has left the window, and moves times later than now to now.
    fn tidy(&self, log: &mut Log, now: u64) {
        while log.entries.front().is_some_and(|e| self.is_gone(e, now)) {
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

/// Takes up to `most` from an entry, and says how much it was.
fn take(entry: &mut Entry, most: u64) -> u64 {
    let taken = most.min(entry.count);
    entry.count -= taken;
    taken
}
