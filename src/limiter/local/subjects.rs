use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::{
    capacity::Capacity,
    hash::KeyHash,
    request::Request,
    shard::{Shard, WAYS, times_kept},
};
use crate::{
    algorithm::State,
    clock::SharedClock,
    decision::{Decision, Receipt},
    error::{ConfigError, LimiterError},
    limiter::{
        Tier,
        quotas::{Replaced, Rules},
    },
    op::Op,
};

/// The most parts of the table with a lock of their own.
const MAX_SHARDS: usize = 256;

/// Keys spread unevenly over the shards. Of one with fewer entries too many would be given up while
/// there is room elsewhere.
const MIN_SHARD: usize = 4_096;

/// Keys of which more is to be remembered than one instant: several quotas, windows, a log, a
/// block. Each is updated under the lock of its shard.
///
/// As in the lock-free table, an entry with nothing left to remember is free, and where all are
/// taken the one with the least to forget gives way.
#[derive(Debug)]
pub(super) struct Subjects {
    shards: Box<[Mutex<Shard>]>,
    evictions: AtomicU64,
    /// How many times all logs keep together, and how many they may.
    times_kept: AtomicUsize,
    max_times: usize,
}

impl Subjects {
    pub(super) fn try_new(capacity: Capacity, rules: &Arc<Rules>) -> Result<Self, ConfigError> {
        // The same load as the lock-free table's, see there.
        let entries = capacity.keys.saturating_mul(15).div_ceil(8);
        let shards = (entries / MIN_SHARD).clamp(1, MAX_SHARDS);
        let buckets = entries.div_ceil(shards * WAYS).max(2);
        let shard = |_| Shard::try_new(buckets * WAYS, Arc::clone(rules)).map(Mutex::new);
        let shards: Result<_, _> = (0..shards).map(shard).collect();
        Ok(Self {
            shards: shards.map_err(|error| capacity.refused(&error))?,
            evictions: AtomicU64::new(0),
            times_kept: AtomicUsize::new(0),
            max_times: capacity.log_times,
        })
    }

    pub(super) fn decide(
        &self,
        key: KeyHash,
        clock: &SharedClock,
        tier: Tier,
        op: Op,
    ) -> Result<Decision, LimiterError> {
        let mut shard = self.lock(key);
        // Read under the lock, so that no state is later than now unless the clock stepped back.
        let time = clock.now();
        let rules = Arc::clone(&shard.rules);
        let tier = rules.tiers.find(tier)?;
        let request = Request {
            now: time.as_nanos(),
            receipt: Receipt::new(time),
            block_for: rules.block_for,
            tier,
            quotas: rules.tiers.quotas(tier),
            op,
        };
        let (decision, entry) = match shard.find(key) {
            Some(entry) => (self.decide_known(&mut shard, entry, &request), Some(entry)),
            None => self.decide_new(&mut shard, key, &request),
        };
        self.relieve(&mut shard, entry, request.now);
        Ok(decision)
    }

    fn decide_known(&self, shard: &mut Shard, entry: usize, request: &Request<'_>) -> Decision {
        let before = shard.times_kept(entry);
        let decision = shard.decide(entry, request);
        self.count_times(before, shard.times_kept(entry));
        decision
    }

    /// Decides about a key that is not there, and makes room for it if it leaves anything to
    /// remember.
    fn decide_new(
        &self,
        shard: &mut Shard,
        key: KeyHash,
        request: &Request<'_>,
    ) -> (Decision, Option<usize>) {
        let mut states = vec![State::FRESH; shard.width()];
        let mut blocked_until = 0;
        let decision = request.decide(&mut states, &mut blocked_until);
        let (rules, tier, now) = (&shard.rules, request.tier, request.now);
        if rules.loss_of(&states, |_| tier, blocked_until, now) == 0 {
            return (decision, None);
        }
        let (entry, lost) = shard.victim(key, now);
        self.count_times(shard.times_kept(entry), times_kept(&states));
        shard.put(entry, key.tag, states, blocked_until);
        shard.set_counted_by(entry, tier);
        self.evictions
            .fetch_add(u64::from(lost > 0), Ordering::Relaxed);
        (decision, Some(entry))
    }

    fn count_times(&self, before: usize, after: usize) {
        // Most states are no logs, and most requests of a log that is full change nothing.
        if after > before {
            self.times_kept.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.times_kept.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Makes room when all logs together keep too many times: those that have run out go first,
    /// and beyond the bound one with little to forget, but not `current`.
    fn relieve(&self, shard: &mut Shard, current: Option<usize>, now: u64) {
        let kept = || self.times_kept.load(Ordering::Relaxed);
        if kept() <= self.max_times - self.max_times / 8 {
            return;
        }
        for entry in shard.logs_run_out(now) {
            self.give_up(shard, entry);
        }
        if kept() > self.max_times
            && let Some((entry, lost)) = shard.least_log(current, now)
        {
            self.give_up(shard, entry);
            self.evictions
                .fetch_add(u64::from(lost > 0), Ordering::Relaxed);
        }
    }

    fn give_up(&self, shard: &mut Shard, entry: usize) {
        self.count_times(shard.times_kept(entry), 0);
        let (states, _) = shard.entry(entry);
        states.fill(State::FRESH);
    }

    /// Puts other rules in force, shard by shard.
    pub(super) fn install(&self, rules: &Arc<Rules>, replaced: Replaced) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.rules = Arc::clone(rules);
            if !replaced.keeps_state {
                self.count_times(shard.forget_default(replaced.at), 0);
            }
        }
    }

    fn lock(&self, key: KeyHash) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[key.tag as usize % self.shards.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys with something to remember at `now`. Walks the whole table.
    pub(super) fn live_keys(&self, now: u64) -> usize {
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
            .map(|shard| shard.live_keys(now))
            .sum()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}
