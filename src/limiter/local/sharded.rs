//! The sharded table: keys with more to remember than one instant.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::{
    apply::{Apply, Subject},
    block::Block,
    capacity::{Capacity, entries_for},
    hash::KeyHash,
    shard::{Entries, TableShard, WAYS, times_held},
};
use crate::{
    algorithm::{State, Weight},
    clock::{SharedClock, Timestamp},
    decision::Decision,
    decision::Op,
    error::{ConfigError, LimiterError},
    limiter::{
        Tier,
        limits::{Chosen, Limits, Replaced},
        request_quota::several_quotas,
    },
    lock::unpoisoned,
};

/// Entries of a shard, from this many to twice as many. Keys spread unevenly over the shards: of
/// one with fewer entries too many would be given up while there is room elsewhere. In one with
/// more, a change of quota would hold the lock for longer.
const MIN_ENTRIES_PER_SHARD: usize = 4_096;

/// How many shards a request looks at to make room for its log.
const SHARDS_LOOKED_AT: usize = 4;

/// Keys of which more is to be remembered than one instant: several quotas, windows, a log, a
/// block. Each is updated under the lock of its shard.
///
/// As in the lock-free table, an entry with nothing left to remember is free, and where all are
/// taken the one with the least to forget gives way.
#[derive(Debug)]
pub(super) struct Sharded {
    shards: Box<[Mutex<TableShard>]>,
    /// How many keys each of them has room for, once the first has come.
    entries: usize,
    evictions: AtomicU64,
    /// For how many times all logs hold memory together, and for how many they may.
    times_held: AtomicUsize,
    max_times: usize,
    /// The shard in which the search for logs to give up goes on.
    hand: AtomicUsize,
}

impl Sharded {
    pub(super) fn try_new(capacity: Capacity, limits: &Arc<Limits>) -> Result<Self, ConfigError> {
        let entries = entries_for(capacity.keys);
        let count = (entries / MIN_ENTRIES_PER_SHARD).max(1);
        let mut shards = Vec::new();
        let room = shards.try_reserve_exact(count);
        room.map_err(|_| capacity.refused())?;
        shards.resize_with(count, || Mutex::new(TableShard::new(Arc::clone(limits))));
        Ok(Self {
            shards: shards.into_boxed_slice(),
            entries: entries.div_ceil(count * WAYS).max(2) * WAYS,
            evictions: AtomicU64::new(0),
            times_held: AtomicUsize::new(0),
            max_times: capacity.log_times,
            hand: AtomicUsize::new(0),
        })
    }

    pub(super) fn decide(
        &self,
        key: KeyHash,
        clock: &SharedClock,
        tier: &Tier,
        op: &Op,
    ) -> Result<Decision, LimiterError> {
        let mut shard = lock(&self.shards[key.tag as usize % self.shards.len()]);
        // Read under the lock, so that no state is later than now unless the clock stepped back.
        let time = clock.now();
        let TableShard { limits, entries } = &mut *shard;
        let chosen = limits.choose(tier, op)?;
        let own;
        let quotas = match chosen {
            Chosen::Tier(tier) => limits.quotas(tier),
            Chosen::Request(fitted) => {
                own = limits.of_request(fitted).ok_or_else(several_quotas)?;
                &own
            }
        };
        let request = Apply {
            time,
            limits,
            quotas,
            tier: chosen.index(),
            op,
        };
        let mut grew = false;
        let decision = match entries.find(key) {
            Some(entry) => self.decide_known(entries, entry, &request, &mut grew),
            None => self.decide_new(entries, key, &request, &mut grew),
        };
        drop(shard);
        if grew && self.times_held.load(Ordering::Relaxed) > self.max_times / 8 * 7 {
            self.relieve(key, time);
        }
        Ok(decision)
    }

    #[inline]
    fn decide_known(
        &self,
        entries: &mut Entries,
        entry: usize,
        request: &Apply<'_>,
        grew: &mut bool,
    ) -> Decision {
        let before = entries.times_held(entry);
        let decision = request.decide(&mut entries.subject(entry));
        *grew = self.count_times(before, entries.times_held(entry));
        decision
    }

    /// Decides about a key that is not there, makes room for it if it leaves anything to
    /// remember, and notes whether logs hold more memory now.
    fn decide_new(
        &self,
        entries: &mut Entries,
        key: KeyHash,
        request: &Apply<'_>,
        grew: &mut bool,
    ) -> Decision {
        let mut states = vec![State::FRESH; request.limits.states()];
        let mut block = Block::NONE;
        let decision = request.decide(&mut Subject {
            states: &mut states,
            block: &mut block,
        });
        let now = request.now();
        if block == Block::NONE && request.limits.weight(&states, now) == Weight::default() {
            return decision;
        }
        if entries.make(self.entries, request.limits).is_err() {
            // No memory for any key of this shard: as if all its entries had more to forget.
            self.evictions.fetch_add(1, Ordering::Relaxed);
            return decision;
        }
        let (entry, forgotten) = entries.victim(request.limits, key, now);
        *grew = self.count_times(entries.times_held(entry), times_held(&states));
        entries.put(entry, key.tag, states, block);
        let evicted = forgotten != Weight::default();
        self.evictions
            .fetch_add(u64::from(evicted), Ordering::Relaxed);
        decision
    }

    /// Notes what logs hold after a change, and says whether that is more than before.
    fn count_times(&self, before: usize, after: usize) -> bool {
        // Most states are no logs, and most requests of a log that is full change nothing.
        if after > before {
            self.times_held.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.times_held.fetch_sub(before - after, Ordering::Relaxed);
        }
        after > before
    }

    /// Makes room when all logs together hold too much: those with nothing left to remember go
    /// first, and beyond the bound those with little, but not that of the key that was just decided
    /// about. A request looks at a few shards, and at a part of each.
    #[cold]
    fn relieve(&self, current: KeyHash, time: Timestamp) {
        for _ in 0..SHARDS_LOOKED_AT.min(self.shards.len()) {
            let must = self.times_held.load(Ordering::Relaxed) > self.max_times;
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let mut shard = lock(&self.shards[place]);
            let TableShard { limits, entries } = &mut *shard;
            let given_up = entries.give_up_a_log(limits, current.tag, must, time.as_nanos());
            if let Some((times, is_live)) = given_up {
                self.count_times(times, 0);
                self.evictions
                    .fetch_add(u64::from(is_live), Ordering::Relaxed);
            }
            if self.times_held.load(Ordering::Relaxed) <= self.max_times {
                return;
            }
        }
    }

    /// Puts other limits in force, shard by shard. Where keys have more counters than before and
    /// there is no memory for them, a shard forgets its keys.
    pub(super) fn install(&self, limits: &Arc<Limits>, replaced: &Replaced) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.entries.all_times_held();
            if shard.install(limits, replaced).is_err() {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            self.count_times(before, shard.entries.all_times_held());
        }
    }

    /// Keys with something to remember at `now`. Walks the whole table.
    pub(super) fn live_keys(&self, now: u64) -> usize {
        let shards = self.shards.iter().map(lock);
        shards.map(|shard| shard.live_keys(now)).sum()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

fn lock(shard: &Mutex<TableShard>) -> MutexGuard<'_, TableShard> {
    unpoisoned(shard.lock())
}
