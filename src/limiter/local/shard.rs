use std::{collections::TryReserveError, ops::Range, sync::Arc};

use super::{hash::KeyHash, request::Request};
use crate::{
    algorithm::{Meter, State},
    decision::Decision,
    limiter::quotas::{Rules, TierIndex},
    op::Op,
};

/// Entries in a bucket; a key can live in two buckets of its shard.
pub(super) const WAYS: usize = 4;

/// How many entries a request looks at first to make room for its log: enough to find one with
/// little to forget, few enough not to be felt.
const LOGS_LOOKED_AT: usize = 32;

/// A part of the table, under a lock of its own.
#[derive(Debug)]
pub(super) struct Shard {
    /// Here, so that who holds the lock sees one consistent set of quotas.
    pub(super) rules: Arc<Rules>,
    /// 0 for an entry that was never used.
    tags: Box<[u64]>,
    /// The instant until which a key is blocked.
    blocked_until: Box<[u64]>,
    /// As many for each entry as the widest tier has quotas.
    states: Box<[State]>,
    /// Where the search for logs to give up goes on.
    hand: usize,
    /// The tier by whose quota each state was counted; left out where there is but one.
    counted_by: Box<[TierIndex]>,
}

pub(super) fn times_kept(states: &[State]) -> usize {
    states.iter().map(State::times_kept).sum()
}

fn filled<T: Clone>(len: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, value);
    Ok(all.into_boxed_slice())
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
    pub(super) fn try_new(entries: usize, rules: Arc<Rules>) -> Result<Self, TryReserveError> {
        let states = entries.saturating_mul(rules.tiers.width());
        let counted = if rules.tiers.are_several() { states } else { 0 };
        Ok(Self {
            tags: filled(entries, 0)?,
            blocked_until: filled(entries, 0)?,
            states: filled(states, State::FRESH)?,
            counted_by: filled(counted, 0)?,
            hand: 0,
            rules,
        })
    }

    pub(super) fn width(&self) -> usize {
        self.states.len() / self.tags.len()
    }

    fn states_of(&self, entry: usize) -> Range<usize> {
        let width = self.width();
        entry * width..(entry + 1) * width
    }

    pub(super) fn entry(&mut self, entry: usize) -> (&mut [State], &mut u64) {
        let range = self.states_of(entry);
        (&mut self.states[range], &mut self.blocked_until[entry])
    }

    pub(super) fn decide(&mut self, entry: usize, request: &Request<'_>) -> Decision {
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
    pub(super) fn set_counted_by(&mut self, entry: usize, tier: TierIndex) {
        if self.counted_by.is_empty() {
            return;
        }
        let first = self.states_of(entry).start;
        let quotas = self.rules.tiers.quotas(tier).meters.len();
        self.counted_by[first..first + quotas].fill(tier);
    }

    /// Forgets what the default tier's quota at this place has counted, and says how many times
    /// that were.
    pub(super) fn forget_default(&mut self, at: usize) -> usize {
        let mut times = 0;
        for index in (at..self.states.len()).step_by(self.width()) {
            if self.counted_by.get(index).is_none_or(|tier| *tier == 0) {
                times += self.states[index].times_kept();
                self.states[index] = State::FRESH;
            }
        }
        times
    }

    pub(super) fn put(&mut self, entry: usize, tag: u64, states: Vec<State>, blocked_until: u64) {
        self.tags[entry] = tag;
        let (old, blocked) = self.entry(entry);
        *blocked = blocked_until;
        for (old, new) in old.iter_mut().zip(states) {
            *old = new;
        }
    }

    pub(super) fn find(&self, key: KeyHash) -> Option<usize> {
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
    pub(super) fn victim(&self, key: KeyHash, now: u64) -> (usize, u64) {
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
            let loss = self.loss_of(entry, now);
            survey.free += usize::from(loss == 0);
            if loss < survey.loss {
                survey.least = entry;
                survey.loss = loss;
            }
        }
        survey
    }

    pub(super) fn times_kept(&self, entry: usize) -> usize {
        times_kept(&self.states[self.states_of(entry)])
    }

    /// Of the next few entries the logs with nothing left to remember.
    pub(super) fn logs_run_out(&mut self, now: u64) -> Vec<usize> {
        self.hand = (self.hand + LOGS_LOOKED_AT) % self.tags.len();
        let mut run_out = self.logs(self.nearby()).collect::<Vec<_>>();
        run_out.retain(|entry| self.loss_of(*entry, now) == 0);
        run_out
    }

    /// Of the next few entries the log with the least to forget; if that is exhausted, of all.
    pub(super) fn least_log(&self, current: Option<usize>, now: u64) -> Option<(usize, u64)> {
        let least = |entries| {
            let others = self.logs(entries).filter(|entry| Some(*entry) != current);
            let losses = others.map(|entry| (entry, self.loss_of(entry, now)));
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
        entries.filter(|entry| self.times_kept(*entry) > 0)
    }

    fn loss_of(&self, entry: usize, now: u64) -> u64 {
        let range = self.states_of(entry);
        let counted_by = |at| self.counted_by.get(range.start + at).copied().unwrap_or(0);
        let states = &self.states[range.clone()];
        let blocked_until = self.blocked_until[entry];
        self.rules.loss_of(states, counted_by, blocked_until, now)
    }

    pub(super) fn live_keys(&self, now: u64) -> usize {
        let entries = 0..self.tags.len();
        entries
            .filter(|entry| self.loss_of(*entry, now) > 0)
            .count()
    }
}
