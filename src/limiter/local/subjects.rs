use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    hash::KeyHash,
    quotas::{Quotas, Replaced, Rules, TierIndex},
};
use crate::{
    algorithm::{Answer, State, step},
    clock::SharedClock,
    decision::{Decision, Measure, QuotaStatus, QuotaStatuses, Receipt},
    error::LimiterError,
    limiter::Tier,
    op::Op,
};

/// Entries in a bucket; a key can live in two buckets of its shard.
const WAYS: usize = 4;

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
    /// The tier by whose quota each state was counted; left out where there is but one.
    counted_by: Box<[TierIndex]>,
}

impl Subjects {
    pub(super) fn new(max_keys: usize, rules: &Arc<Rules>) -> Self {
        // The same load as the lock-free table's, see there.
        let entries = max_keys.saturating_mul(15).div_ceil(8);
        let shards = (entries / MIN_SHARD).clamp(1, MAX_SHARDS);
        let buckets = entries.div_ceil(shards * WAYS).max(2);
        let shard = |_| Mutex::new(Shard::new(buckets * WAYS, Arc::clone(rules)));
        Self {
            shards: (0..shards).map(shard).collect(),
            evictions: AtomicU64::new(0),
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
        let tier = rules.tiers.find(tier)?;
        let request = Request {
            now: time.as_nanos(),
            receipt: Receipt::new(time),
            block_for: rules.block_for,
            tier,
            quotas: rules.tiers.quotas(tier),
            op,
        };
        Ok(match shard.find(key) {
            Some(entry) => shard.decide(entry, &request),
            None => self.decide_new(&mut shard, key, &request),
        })
    }

    /// Decides about a key that is not there, and makes room for it if it leaves anything to
    /// remember.
    fn decide_new(&self, shard: &mut Shard, key: KeyHash, request: &Request<'_>) -> Decision {
        let mut states = vec![State::FRESH; shard.width()];
        let mut blocked_until = 0;
        let decision = request.decide(&mut states, &mut blocked_until);
        let (rules, tier, now) = (&shard.rules, request.tier, request.now);
        if rules.to_forget(&states, |_| tier, blocked_until, now) > 0 {
            let (entry, lost) = shard.victim(key, now);
            shard.put(entry, key.tag, states, blocked_until);
            shard.set_counted_by(entry, tier);
            self.evictions
                .fetch_add(u64::from(lost > 0), Ordering::Relaxed);
        }
        decision
    }

    /// Puts other rules in force, shard by shard.
    pub(super) fn install(&self, rules: &Arc<Rules>, replaced: Replaced) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.rules = Arc::clone(rules);
            if !replaced.keeps_state {
                shard.forget_default(replaced.at);
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

/// An operation on one key, with all that does not depend on the key.
struct Request<'a> {
    now: u64,
    receipt: Receipt,
    tier: TierIndex,
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
                // Also what only other tiers count.
                states.fill(State::FRESH);
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

/// A state that another tier counted.
struct Aside {
    at: usize,
    counted_by: TierIndex,
    state: State,
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
        let counted = if rules.tiers.are_several() {
            entries * width
        } else {
            0
        };
        Self {
            counted_by: vec![0; counted].into(),
            tags: vec![0; entries].into(),
            blocked_until: vec![0; entries].into(),
            states: vec![State::FRESH; entries * width].into(),
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

    fn decide(&mut self, entry: usize, request: &Request<'_>) -> Decision {
        let aside = self.set_aside(entry, request);
        let (states, blocked_until) = self.entry(entry);
        let decision = request.decide(states, blocked_until);
        self.put_back(entry, request, aside);
        decision
    }

    /// Takes out what another tier counted and `request` must not go on from, or not change.
    fn set_aside(&mut self, entry: usize, request: &Request<'_>) -> Vec<Aside> {
        if self.counted_by.is_empty() {
            return Vec::new();
        }
        let looks = matches!(request.op, Op::Peek(_));
        let mut aside = Vec::new();
        let first = self.states_of(entry).start;
        for at in 0..request.quotas.meters.len() {
            let counted_by = self.counted_by[first + at];
            if counted_by == request.tier {
                continue;
            }
            let state = &mut self.states[first + at];
            let alike = self.rules.tiers.count_alike(at, counted_by, request.tier);
            let state = match (alike, looks) {
                (true, false) => continue,
                (true, true) => state.clone(),
                (false, _) => std::mem::replace(state, State::FRESH),
            };
            aside.push(Aside {
                at,
                counted_by,
                state,
            });
        }
        aside
    }

    /// Puts back what was taken out, unless the tier of `request` has begun to count in its place.
    fn put_back(&mut self, entry: usize, request: &Request<'_>, aside: Vec<Aside>) {
        let looks = matches!(request.op, Op::Peek(_));
        if !looks {
            self.set_counted_by(entry, request.tier);
        }
        if request.op == Op::Reset {
            return;
        }
        let first = self.states_of(entry).start;
        for Aside {
            at,
            counted_by,
            state,
        } in aside
        {
            let begun = request.quotas.meters[at].loss_of(&self.states[first + at], request.now);
            if looks || begun == 0 {
                self.states[first + at] = state;
                self.counted_by[first + at] = counted_by;
            }
        }
    }

    /// Notes whose quotas the entry was counted by, as far as that tier has any.
    fn set_counted_by(&mut self, entry: usize, tier: TierIndex) {
        if self.counted_by.is_empty() {
            return;
        }
        let first = self.states_of(entry).start;
        let quotas = self.rules.tiers.quotas(tier).meters.len();
        self.counted_by[first..first + quotas].fill(tier);
    }

    /// Forgets what the default tier's quota at this place has counted.
    fn forget_default(&mut self, at: usize) {
        for index in (at..self.states.len()).step_by(self.width()) {
            if self.counted_by.get(index).is_none_or(|tier| *tier == 0) {
                self.states[index] = State::FRESH;
            }
        }
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

    fn to_forget(&self, entry: usize, now: u64) -> u64 {
        let range = self.states_of(entry);
        let counted_by = |at| self.counted_by.get(range.start + at).copied().unwrap_or(0);
        let states = &self.states[range.clone()];
        let blocked_until = self.blocked_until[entry];
        self.rules.to_forget(states, counted_by, blocked_until, now)
    }

    fn live_keys(&self, now: u64) -> usize {
        let entries = 0..self.tags.len();
        entries
            .filter(|entry| self.to_forget(*entry, now) > 0)
            .count()
    }
}
