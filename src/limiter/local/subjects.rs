use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    hash::KeyHash,
    quotas::{Capacity, Quotas, Replaced, Rules},
};
use crate::{
    algorithm::{Answer, Meter, State, step},
    clock::SharedClock,
    decision::{Decision, Measure, QuotaStatus, QuotaStatuses, Receipt},
    error::LimiterError,
    limiter::Tier,
    op::Op,
};

/// Entries in a bucket; a key can live in two buckets of its shard.
const WAYS: usize = 4;

/// Parts of the table with a lock of their own.
const SHARDS: usize = 256;

/// How many entries a request looks at first to make room for its log: enough to find one with
/// little to forget, few enough not to be felt.
const LOGS_LOOKED_AT: usize = 32;

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

#[derive(Debug)]
struct Shard {
    /// Here, so that who holds the lock sees one consistent set of quotas.
    rules: Arc<Rules>,
    /// 0 for an entry that was never used.
    tags: Box<[u64]>,
    /// The instant until which a key is blocked.
    blocked_until: Box<[u64]>,
    /// As many for each entry as the widest tier has quotas.
    states: Box<[State]>,
    /// Where the search for logs to give up goes on.
    hand: usize,
}

impl Subjects {
    pub(super) fn new(capacity: Capacity, rules: &Arc<Rules>) -> Self {
        // The same load as the lock-free table's, see there.
        let entries = capacity.keys.saturating_mul(15).div_ceil(8);
        let buckets = entries.div_ceil(SHARDS * WAYS).max(2);
        let shard = |_| Mutex::new(Shard::new(buckets * WAYS, Arc::clone(rules)));
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            evictions: AtomicU64::new(0),
            times_kept: AtomicUsize::new(0),
            max_times: capacity.log_times,
        }
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
        let quotas = rules.tiers.get(tier)?;
        let request = Request {
            now: time.as_nanos(),
            receipt: Receipt::new(time),
            block_for: rules.block_for,
            quotas,
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
        let (states, blocked_until) = shard.entry(entry);
        let before = times_kept(states);
        let decision = request.decide(states, blocked_until);
        self.count_times(before, times_kept(states));
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
        if shard.rules.to_forget(&states, blocked_until, request.now) == 0 {
            return (decision, None);
        }
        let (entry, lost) = shard.victim(key, request.now);
        let (old, _) = shard.entry(entry);
        self.count_times(times_kept(old), times_kept(&states));
        shard.put(entry, key.tag, states, blocked_until);
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
        let (states, _) = shard.entry(entry);
        self.count_times(times_kept(states), 0);
        states.fill(State::FRESH);
    }

    /// Puts other rules in force, shard by shard.
    pub(super) fn install(&self, rules: &Arc<Rules>, replaced: Replaced) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.rules = Arc::clone(rules);
            if !replaced.keeps_state {
                let width = shard.width();
                let states = shard.states.iter_mut().skip(replaced.at);
                states
                    .step_by(width)
                    .for_each(|state| *state = State::FRESH);
            }
        }
    }

    fn lock(&self, key: KeyHash) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[key.tag as usize % SHARDS];
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

fn times_kept(states: &[State]) -> usize {
    states.iter().map(State::times_kept).sum()
}

/// An operation on one key, with all that does not depend on the key.
struct Request<'a> {
    now: u64,
    receipt: Receipt,
    quotas: &'a Quotas,
    block_for: Option<u64>,
    op: Op,
}

impl Request<'_> {
    fn decide(&self, states: &mut [State], blocked_until: &mut u64) -> Decision {
        let blocked = self.blocked_for(blocked_until);
        let op = match self.op {
            // Who is blocked takes nothing. One unit is what taking up to some number hangs on.
            Op::Acquire(cost) if blocked > 0 => Op::Peek(cost),
            Op::AcquireUpTo(most) if blocked > 0 => Op::Peek(most.min(1)),
            op => op,
        };
        let (answer, statuses) = self.step(states, op);
        let decision = Decision::new(answer.outcome(), answer.charged, self.receipt, statuses);
        match self.op {
            Op::Acquire(0) | Op::AcquireUpTo(0) | Op::Peek(0) | Op::Hit(0) => decision,
            Op::Acquire(_) | Op::AcquireUpTo(_) if blocked == 0 && answer.breached => {
                self.start_block(decision, blocked_until)
            }
            Op::Refund(..) => decision,
            Op::Reset => {
                *blocked_until = 0;
                decision
            }
            _ if blocked > 0 => decision.into_blocked(Duration::from_nanos(blocked)),
            _ => decision,
        }
    }

    /// How long the key stays out.
    fn blocked_for(&self, blocked_until: &mut u64) -> u64 {
        let Some(longest) = self.block_for else {
            return 0;
        };
        // A clock that stepped back must not lock the key out for longer than a block lasts.
        *blocked_until = (*blocked_until).min(self.now.saturating_add(longest));
        blocked_until.saturating_sub(self.now)
    }

    fn start_block(&self, decision: Decision, blocked_until: &mut u64) -> Decision {
        let Some(block) = self.block_for else {
            return decision;
        };
        *blocked_until = self.now.saturating_add(block);
        decision.into_blocked(Duration::from_nanos(block))
    }

    fn step(&self, states: &mut [State], op: Op) -> (Answer, QuotaStatuses) {
        let Quotas {
            policies, meters, ..
        } = self.quotas;
        let states = &mut states[..meters.len()];
        if let [policy] = policies.as_slice() {
            let mut measures = [Measure::default()];
            let answer = step(meters, states, self.now, op, &mut measures);
            return (answer, QuotaStatus::measured(policy, &measures[0]).into());
        }
        let mut measures = vec![Measure::default(); meters.len()];
        let answer = step(meters, states, self.now, op, &mut measures);
        let statuses = policies.iter().zip(&measures);
        let statuses = statuses.map(|(policy, measure)| QuotaStatus::measured(policy, measure));
        (answer, statuses.collect::<Vec<_>>().into())
    }
}

/// What can be had in a bucket.
struct Survey {
    free: usize,
    /// The entry with the least to forget, and how much that is.
    least: usize,
    loss: u64,
}

impl Shard {
    fn new(entries: usize, rules: Arc<Rules>) -> Self {
        let width = rules.tiers.width();
        Self {
            tags: vec![0; entries].into(),
            blocked_until: vec![0; entries].into(),
            states: vec![State::FRESH; entries * width].into(),
            hand: 0,
            rules,
        }
    }

    fn width(&self) -> usize {
        self.states.len() / self.tags.len()
    }

    fn states_of(&self, entry: usize) -> Range<usize> {
        let width = self.width();
        entry * width..(entry + 1) * width
    }

    fn entry(&mut self, entry: usize) -> (&mut [State], &mut u64) {
        let range = self.states_of(entry);
        (&mut self.states[range], &mut self.blocked_until[entry])
    }

    fn put(&mut self, entry: usize, tag: u64, states: Vec<State>, blocked_until: u64) {
        self.tags[entry] = tag;
        let (old, blocked) = self.entry(entry);
        *blocked = blocked_until;
        for (old, new) in old.iter_mut().zip(states) {
            *old = new;
        }
    }

    fn find(&self, key: KeyHash) -> Option<usize> {
        let mut entries = self.candidates(key).into_iter().flatten();
        entries.find(|entry| self.tags[*entry] == key.tag)
    }

    /// The two buckets that a key can live in.
    fn candidates(&self, key: KeyHash) -> [Range<usize>; 2] {
        let buckets = (self.tags.len() / WAYS) as u64;
        key.buckets.map(|bits| {
            let bucket = ((u64::from(bits) * buckets) >> 32) as usize;
            bucket * WAYS..(bucket + 1) * WAYS
        })
    }

    /// The entry to replace and what is lost with it: a free one of the emptier bucket, else the
    /// one with the least to forget.
    fn victim(&self, key: KeyHash, now: u64) -> (usize, u64) {
        let [first, second] = self.candidates(key).map(|bucket| self.survey(bucket, now));
        let second_is_better = match (first.free, second.free) {
            (0, 0) => second.loss < first.loss,
            (in_first, in_second) => in_second > in_first,
        };
        let better = if second_is_better { second } else { first };
        (better.least, better.loss)
    }

    fn survey(&self, bucket: Range<usize>, now: u64) -> Survey {
        let mut survey = Survey {
            free: 0,
            least: bucket.start,
            loss: u64::MAX,
        };
        for entry in bucket {
            let loss = self.to_forget(entry, now);
            survey.free += usize::from(loss == 0);
            if loss < survey.loss {
                survey.least = entry;
                survey.loss = loss;
            }
        }
        survey
    }

    /// Of the next few entries the logs with nothing left to remember.
    fn logs_run_out(&mut self, now: u64) -> Vec<usize> {
        self.hand = (self.hand + LOGS_LOOKED_AT) % self.tags.len();
        let mut run_out = self.logs(self.nearby()).collect::<Vec<_>>();
        run_out.retain(|entry| self.to_forget(*entry, now) == 0);
        run_out
    }

    /// Of the next few entries the log with the least to forget; if that is exhausted, of all.
    fn least_log(&self, current: Option<usize>, now: u64) -> Option<(usize, u64)> {
        let least = |entries| {
            let others = self.logs(entries).filter(|entry| Some(*entry) != current);
            let losses = others.map(|entry| (entry, self.to_forget(entry, now)));
            losses.min_by_key(|(_, lost)| *lost)
        };
        let found = least(self.nearby());
        if found.is_some_and(|(_, lost)| lost < Meter::EXHAUSTED) {
            return found;
        }
        least(0..self.tags.len())
    }

    /// The entries that `hand` points at, up to the end of the shard.
    fn nearby(&self) -> Range<usize> {
        self.hand..(self.hand + LOGS_LOOKED_AT).min(self.tags.len())
    }

    /// Those of `entries` that keep logs.
    fn logs(&self, entries: Range<usize>) -> impl Iterator<Item = usize> {
        entries.filter(|entry| times_kept(&self.states[self.states_of(*entry)]) > 0)
    }

    fn to_forget(&self, entry: usize, now: u64) -> u64 {
        let states = &self.states[self.states_of(entry)];
        self.rules.to_forget(states, self.blocked_until[entry], now)
    }

    fn live_keys(&self, now: u64) -> usize {
        let entries = 0..self.tags.len();
        entries
            .filter(|entry| self.to_forget(*entry, now) > 0)
            .count()
    }
}
