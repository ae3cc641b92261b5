//! The sliding log: the time of each unit that was admitted in the trailing period.

use std::collections::VecDeque;

use super::{Refund, RefundOf, Verdict};
use crate::{
    decision::{Marks, Status},
    quota::Quota,
};

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

/// The entries of a block, whose counts have one sum. A search in the longest log reads at most this
/// many sums and this many entries, instead of all entries.
const BLOCK: usize = 256;

/// Admitted units and their times in nanoseconds, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<LogEntry>,
    /// The sums of the counts of [`BLOCK`] entries each, except of the last block: a short log has no
    /// sums.
    sums: VecDeque<u64>,
    /// The number of entries of the first block that were removed.
    forgotten: usize,
    total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogEntry {
    at: u64,
    /// Units; 0 after a refund. The newest entry is removed instead.
    count: u64,
}

impl Log {
    pub(crate) const FRESH: Self = Self {
        entries: VecDeque::new(),
        sums: VecDeque::new(),
        forgotten: 0,
        total: 0,
    };

    /// The number of entries that the allocated memory holds.
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.at)
    }

    /// The units at `at`, if that is the time of the newest entries. Several entries have one time
    /// after they were moved.
    fn noted_at(&self, at: u64) -> u64 {
        let newest = self.entries.iter().rev();
        let newest = newest.take_while(|entry| entry.at == at);
        newest.map(|entry| entry.count).sum()
    }

    /// The times and their units.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> + Clone {
        self.entries.iter().map(|entry| (entry.at, entry.count))
    }

    /// The number of entries before the first one that is not early.
    pub(super) fn partition_point(&self, is_early: impl Fn(u64) -> bool) -> usize {
        self.entries.partition_point(|entry| is_early(entry.at))
    }

    fn units_before(&self, entries: usize) -> u64 {
        if entries == self.entries.len() {
            return self.total;
        }
        let (block, first) = self.block_of(entries);
        let before: u64 = self.sums.range(..block).sum();
        let within = self.entries.range(first..entries);
        before + within.map(|entry| entry.count).sum::<u64>()
    }

    /// The time of the entry at which the counts from the oldest on reach `units`.
    fn first_after(&self, units: u64) -> Option<u64> {
        let mut left = units;
        let mut blocks = 0;
        while let Some(sum) = self.sums.get(blocks).filter(|sum| **sum < left) {
            left -= sum;
            blocks += 1;
        }
        let first = (blocks * BLOCK).saturating_sub(self.forgotten);
        let mut within = self.entries.range(first.min(self.entries.len())..);
        let reached = within.find(|entry| {
            left = left.saturating_sub(entry.count);
            left == 0
        });
        reached.map(|entry| entry.at)
    }

    /// The index of the block of an entry, also of the next new one, and the index of the block's first
    /// entry.
    fn block_of(&self, entry: usize) -> (usize, usize) {
        let block = (entry + self.forgotten) / BLOCK;
        (block, (block * BLOCK).saturating_sub(self.forgotten))
    }

    /// Adds `count` units at `at`, which is not earlier than the newest entry.
    pub(crate) fn note(&mut self, at: u64, count: u64) {
        if count == 0 {
            return;
        }
        match self.entries.back_mut() {
            Some(newest) if newest.at == at => newest.count += count,
            _ => {
                let (block, _) = self.block_of(self.entries.len());
                if block > self.sums.len() {
                    self.sums
                        .push_back(self.total - self.sums.iter().sum::<u64>());
                }
                if self.entries.len() == self.entries.capacity() {
                    // Doubles the memory, without the minimum of four that `VecDeque` has: most logs
                    // are short.
                    self.entries.reserve_exact(self.entries.len().max(1));
                }
                self.entries.push_back(LogEntry { at, count });
            }
        }
        self.total += count;
    }

    /// Removes up to `most` units from the entries at `at`.
    fn remove_at(&mut self, at: u64, most: u64) {
        let mut left = most;
        let mut entry = self.partition_point(|noted| noted < at);
        while left > 0 && self.entries.get(entry).is_some_and(|noted| noted.at == at) {
            left -= self.take(entry, left);
            entry += 1;
        }
        self.trim();
    }

    /// Removes up to `most` units from the newest entries.
    fn remove_newest(&mut self, most: u64) {
        let mut left = most;
        while left > 0 && !self.entries.is_empty() {
            left -= self.take(self.entries.len() - 1, left);
            self.trim();
        }
    }

    /// Removes up to `most` units from an entry and returns their number.
    fn take(&mut self, entry: usize, most: u64) -> u64 {
        let (block, _) = self.block_of(entry);
        let noted = &mut self.entries[entry];
        let taken = most.min(noted.count);
        noted.count -= taken;
        if let Some(sum) = self.sums.get_mut(block) {
            *sum -= taken;
        }
        self.total -= taken;
        taken
    }

    fn forget(&mut self, entries: usize) {
        if entries == 0 {
            return;
        }
        let expired = self.units_before(entries);
        let (block, first) = self.block_of(entries);
        let in_block: u64 = self
            .entries
            .range(first..entries)
            .map(|entry| entry.count)
            .sum();
        self.forgotten = (entries + self.forgotten) % BLOCK;
        self.entries.drain(..entries);
        self.sums.drain(..block.min(self.sums.len()));
        if let Some(first) = self.sums.front_mut() {
            *first -= in_block;
        }
        self.total -= expired;
        self.trim();
    }

    /// Removes empty entries at the newest end, and frees unused memory.
    fn trim(&mut self) {
        while self.entries.back().is_some_and(|entry| entry.count == 0) {
            self.entries.pop_back();
            let (last, _) = self.block_of(self.entries.len().saturating_sub(1));
            self.sums.truncate(last);
        }
        if self.entries.len() as u64 > 2 * self.total + 16 {
            self.compact();
        }
        if self.entries.is_empty() {
            *self = Self::FRESH;
        } else if self.entries.capacity() > 4 * self.entries.len().max(4) {
            self.entries.shrink_to(2 * self.entries.len());
            self.sums.shrink_to(2 * self.sums.len());
        }
    }

    /// Removes all empty entries: a client whose requests are refunded one after another, never the
    /// newest, must not fill the log with them.
    fn compact(&mut self) {
        self.entries.retain(|entry| entry.count > 0);
        self.forgotten = 0;
        self.sums.clear();
        let (blocks, _) = self.block_of(self.entries.len().saturating_sub(1));
        for block in 0..blocks {
            let within = self.entries.range(block * BLOCK..(block + 1) * BLOCK);
            self.sums.push_back(within.map(|entry| entry.count).sum());
        }
    }

    /// Moves times later than `now` to now.
    fn move_back_to(&mut self, now: u64) {
        for entry in self.entries.iter_mut().rev().take_while(|e| e.at > now) {
            entry.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The model: one time for each unit.
    #[derive(Default)]
    struct Plain(Vec<u64>);

    #[derive(Debug, Clone)]
    enum Change {
        Note(u64, u64),
        Forget(u64),
        RemoveAt(usize, u64),
        RemoveNewest(u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            6 => (0_u64..3, 1_u64..4).prop_map(|(later, count)| Change::Note(later, count)),
            1 => (0_u64..400).prop_map(Change::Forget),
            2 => (any::<usize>(), 0_u64..5).prop_map(|(at, most)| Change::RemoveAt(at, most)),
            1 => (0_u64..5).prop_map(Change::RemoveNewest),
        ]
    }

    impl Plain {
        fn change(&mut self, log: &mut Log, change: &Change) {
            let newest = self.0.last().copied().unwrap_or(1_000);
            match *change {
                Change::Note(later, count) => {
                    log.note(newest + later, count);
                    self.0.extend((0..count).map(|_| newest + later));
                }
                Change::Forget(age) => {
                    let oldest = newest.saturating_sub(age);
                    log.forget(log.partition_point(|at| at < oldest));
                    self.0.retain(|at| *at >= oldest);
                }
                Change::RemoveAt(place, most) if !self.0.is_empty() => {
                    let at = self.0[place % self.0.len()];
                    log.remove_at(at, most);
                    for _ in 0..most {
                        if let Some(place) = self.0.iter().position(|noted| *noted == at) {
                            self.0.remove(place);
                        }
                    }
                }
                Change::RemoveAt(..) => {}
                Change::RemoveNewest(most) => {
                    log.remove_newest(most);
                    let left = self.0.len().saturating_sub(most as usize);
                    self.0.truncate(left);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn sums_equal_those_of_the_entries(
            changes in prop::collection::vec(change(), 1..40),
            repeated in 1_usize..60,
        ) {
            let (mut log, mut plain) = (Log::FRESH, Plain::default());
            for change in (0..repeated).flat_map(|_| &changes) {
                plain.change(&mut log, change);
                prop_assert_eq!(log.total(), plain.0.len() as u64);
                prop_assert_eq!(log.newest(), plain.0.last().copied());
            }
            for at in [0, 1, plain.0.len() / 2, plain.0.len().saturating_sub(1)] {
                let Some(time) = plain.0.get(at).copied() else { continue };
                prop_assert_eq!(log.first_after(at as u64 + 1), Some(time));
                let early = plain.0.partition_point(|noted| *noted < time);
                let entries = log.partition_point(|noted| noted < time);
                prop_assert_eq!(log.units_before(entries), early as u64);
            }
            prop_assert!(log.capacity() <= 4 * log.entries.len().max(4), "{}", log.capacity());
        }
    }

    #[test]
    fn refunded_entries_take_no_memory() {
        let mut log = Log::FRESH;
        log.note(0, 1);
        for at in 1..10_000 {
            log.note(at, 1);
            log.remove_at(at - 1, 1);
        }
        assert_eq!(log.total(), 1);
        assert!(log.capacity() <= 64, "{}", log.capacity());
    }

    #[test]
    fn empty_log_holds_no_memory() {
        let mut log = Log::FRESH;
        for at in 0..10_000 {
            log.note(at, 1);
        }
        log.forget(9_999);
        assert!(log.capacity() <= 16, "{}", log.capacity());
        log.remove_newest(1);
        assert_eq!((log.capacity(), log), (0, Log::FRESH));
    }
}
