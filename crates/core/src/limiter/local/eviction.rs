//! How much a table holds, and what it evicts beyond that: the entry to replace in two buckets, and logs beyond the
//! memory for their times.

use std::{
    ops::Range,
    sync::atomic::{AtomicIsize, AtomicUsize, Ordering},
};

use crate::hash::KeyHash;
use crate::{
    algorithm::EvictionWeight,
    error::{ConfigError, ConfigErrorKind},
};

/// The index of an entry in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryIndex(pub(super) usize);

impl EntryIndex {
    /// Beyond all entries: the first of the states that have none.
    pub(super) const FRESH: usize = 1 << (usize::BITS - 1);

    pub(super) const fn of_fresh(at: usize) -> Self {
        Self(Self::FRESH + at)
    }

    pub(super) const fn is_fresh(self) -> bool {
        self.0 >= Self::FRESH
    }
}

/// The entries of a bucket; a key has two buckets of its shard.
const WAYS: usize = 4;

/// The free entries of a bucket, and the best one to replace.
struct Survey {
    free: usize,
    /// The entry with the least weight: the weight, and whether it is used.
    least: Option<([u64; 3], bool, EntryIndex)>,
}

/// A key's two buckets among this many entries.
pub(super) fn candidates(key: KeyHash, entries: usize) -> [Range<usize>; 2] {
    key.buckets(entries / WAYS)
        .map(|bucket| bucket * WAYS..(bucket + 1) * WAYS)
}

/// The entry of a key in a shard with these tags, if it has one.
#[inline]
pub(super) fn find(tags: &[u64], key: KeyHash) -> Option<EntryIndex> {
    if tags.is_empty() {
        return None;
    }
    let buckets = candidates(key, tags.len()).into_iter();
    let mut buckets = buckets.map(|bucket| (bucket.start, &tags[bucket]));
    buckets.find_map(|(first, tags)| {
        let way = tags.iter().position(|tag| *tag == key.tag)?;
        Some(EntryIndex(first + way))
    })
}

/// The entry of a shard with these tags to replace, and its weight: a free one of the emptier bucket, an unused one before
/// one that has ended, as a clock that steps back would find that again; otherwise the one with the least weight. An entry
/// without a weight stays. `None` if all stay.
pub(super) fn least_weighty(
    tags: &[u64],
    key: KeyHash,
    weigh: impl Fn(EntryIndex) -> Option<[u64; 3]>,
) -> Option<(EntryIndex, [u64; 3])> {
    let buckets = candidates(key, tags.len());
    let [first, second] = buckets.map(|bucket| survey(tags, bucket, &weigh));
    let better = match (first.free, second.free) {
        (0, 0) => [first.least, second.least].into_iter().flatten().min(),
        (in_first, in_second) if in_second > in_first => second.least,
        _ => first.least,
    };
    better.map(|(weight, _, entry)| (entry, weight))
}

fn survey(
    tags: &[u64],
    bucket: Range<usize>,
    weigh: impl Fn(EntryIndex) -> Option<[u64; 3]>,
) -> Survey {
    let weighed = bucket
        .map(EntryIndex)
        .filter_map(|entry| Some((weigh(entry)?, tags[entry.0] > 0, entry)));
    let mut survey = Survey {
        free: 0,
        least: None,
    };
    for entry in weighed {
        survey.free += usize::from(entry.0 == EvictionWeight::FRESH);
        if survey.least.is_none_or(|least| entry < least) {
            survey.least = Some(entry);
        }
    }
    survey
}

/// The number of shards that a request searches to make room for its log.
const SHARDS_SEARCHED: usize = 4;

/// The most entries, and the most logs among them, that a request searches in a shard to make room for
/// its own log: enough to find one with little usage, and few enough to be fast.
pub(super) const ENTRIES_SEARCHED: usize = 512;
pub(super) const LOGS_SEARCHED: usize = 16;

/// The number of times that all logs of a table have memory for, and its bound.
#[derive(Debug)]
pub(super) struct LogBudget {
    /// The number of times. Briefly negative if, of two changes of one log, the second is added first.
    held: AtomicIsize,
    most: usize,
    /// The shard at which the next search for logs begins.
    hand: AtomicUsize,
}

impl LogBudget {
    pub(super) fn new(most: usize) -> Self {
        Self {
            held: AtomicIsize::new(0),
            most,
            hand: AtomicUsize::new(0),
        }
    }

    /// Adds the difference after a change of logs, and returns whether they hold more than before.
    pub(super) fn count(&self, before: usize, after: usize) -> bool {
        // Most states are not logs, and most requests on a full log change nothing.
        if after > before {
            let more = (after - before).cast_signed();
            self.held.fetch_add(more, Ordering::Relaxed);
        } else if after < before {
            let less = (before - after).cast_signed();
            self.held.fetch_sub(less, Ordering::Relaxed);
        }
        after > before
    }

    /// Whether a request whose log grew has to search for fresh logs.
    pub(super) fn is_tight(&self) -> bool {
        self.held() > self.most / 8 * 7
    }

    fn held(&self) -> usize {
        usize::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn is_overdrawn(&self) -> bool {
        self.held() > self.most
    }

    /// Makes room when all logs together hold too much: evicts fresh logs first, and beyond the bound
    /// those with little usage. `evict` evicts a log in one of `shards`, a live one only if it must,
    /// and returns the number of times that this frees. A request searches a part of a few shards.
    #[cold]
    pub(super) fn relieve(
        &self,
        shards: usize,
        mut evict: impl FnMut(usize, bool) -> Option<usize>,
    ) {
        for _ in 0..SHARDS_SEARCHED.min(shards) {
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % shards;
            if let Some(times) = evict(place, self.is_overdrawn()) {
                self.count(times, 0);
            }
            if !self.is_overdrawn() {
                return;
            }
        }
    }
}

/// The default of `max_keys`: 2^18, about 8 MB of instants.
pub(super) const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// The default of `max_log_times`: 2^22.
pub(super) const DEFAULT_MAX_LOG_TIMES: usize = 1 << 22;

/// The bounds of a limiter's table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    /// The most times that all logs together have memory for.
    pub(super) log_times: usize,
}

/// The most keys: a bucket's number has 32 bits.
const MAX_KEYS: u64 = 1 << 32;

/// The least entries of a shard; it has at most twice as many. Keys spread unevenly over the shards: a
/// smaller shard would evict keys while others have room. In a larger one, a change of quota would hold
/// the lock for longer.
const MIN_ENTRIES_PER_SHARD: usize = 4_096;

/// The most shards: 24 bits of a tag choose one.
const MAX_SHARDS: usize = 1 << 22;

/// The entries of a table for `keys` live keys: 15 for 8. At this load two choices of a bucket of
/// four lose about 1 key in 27,000.
pub(super) const fn entries_for(keys: usize) -> usize {
    keys.saturating_mul(15).div_ceil(8)
}

impl Capacity {
    /// The capacity of a limiter without a table of its own.
    pub(super) const NONE: Self = Self {
        keys: 0,
        log_times: 0,
    };

    /// # Errors
    ///
    /// If `max_keys` is 0 or more than can be numbered.
    pub(super) fn checked(keys: usize, log_times: usize) -> Result<Self, ConfigError> {
        if keys == 0 || keys as u64 > MAX_KEYS {
            return Err(ConfigError::new(
                ConfigErrorKind::MaxKeys,
                format!("max_keys is {keys}; accepted are 1 to {MAX_KEYS}"),
            ));
        }
        Ok(Self { keys, log_times })
    }

    /// The number of shards of a table with locks whose keys have this number of states, and the entries of each.
    pub(super) fn shards(self, states: usize) -> (usize, usize) {
        let entries = entries_for(self.keys.saturating_mul(states));
        let count = (entries / MIN_ENTRIES_PER_SHARD).clamp(1, MAX_SHARDS);
        let buckets = entries.div_ceil(count * WAYS);
        (count, buckets.max(2) * WAYS)
    }

    /// The error of a capacity that exceeds the memory.
    pub(super) fn refused(self) -> ConfigError {
        ConfigError::new(
            ConfigErrorKind::MaxKeys,
            format!(
                "max_keys is {}, and there is no memory for so many",
                self.keys
            ),
        )
    }
}

/// The numbers below `count`, each once, neighbours far apart.
///
/// A key has two buckets, and a restore inserts it into the emptier. In the order of the buckets those at
/// the front would fill with keys of their own before the keys that share them come: of a full table of lone
/// buckets 5 keys in 10,000 were lost instead of none.
pub(super) fn scattered(count: usize) -> impl Fn(usize) -> usize {
    // Near the golden section, and without a common divisor.
    let mut step = (count as u128 * 618_034 / 1_000_000).max(1);
    while common_divisor(step, count as u128) > 1 {
        step += 1;
    }
    move |number| (number as u128 * step % count.max(1) as u128) as usize
}

fn common_divisor(mut one: u128, mut other: u128) -> u128 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for count in (1..200).chain([4_096, 4_098, 7_680]) {
            let mut numbers: Vec<_> = (0..count).map(scattered(count)).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count}");
        }
        assert_eq!(scattered(0)(0), 0);
    }

    /// A negative sum must not count as a huge one: otherwise all logs, also live ones, would be evicted
    /// until the other change is added.
    #[test]
    fn a_change_that_is_noted_before_an_earlier_one_makes_nothing_tight() {
        let budget = LogBudget::new(100);
        budget.count(9, 0);
        assert!(!budget.is_tight() && !budget.is_overdrawn());
        budget.relieve(8, |_, must| {
            assert!(!must);
            None
        });
        budget.count(0, 9);
        budget.count(0, 100);
        assert!(budget.is_tight() && !budget.is_overdrawn());
        budget.count(100, 101);
        assert!(budget.is_overdrawn());
    }
}
