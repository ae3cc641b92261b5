//! One operation in a call to a store: prepared, on a state in its entry, or with the states taken out of the table.

use std::{mem, time::Duration};

use super::{
    entries::{Newcomer, ShardRoom, StoreShard},
    locks::ShardIndex,
    stored_limit::{CountersInForce, StoredLimit},
};
use crate::{
    algorithm::{CounterIndex, EvictionWeight, State},
    clock::ClockReading,
    decision::{Decision, MergedDecisions, Op},
    error::LimiterError,
    limiter::{
        Tier,
        apply_operation::{Apply, Judgement, LoneCharge, Subject, Verdicts, charge_several},
        block::Block,
        local::{eviction::EntryIndex, hash::KeyHash},
        tier_quotas::{TierIndex, TierQuotas},
        tier_set::Chosen,
    },
    quota::Priority,
    small_list::SmallList,
};

/// The number of states of most limits. Those of others are on the heap during a call.
const FEW_STATES: usize = 4;

/// A call to a store: an operation on one key by one limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreCall<'a> {
    pub(crate) limit: &'a StoredLimit,
    pub(crate) key: KeyHash,
    pub(crate) tier: &'a Tier,
    pub(crate) class: Priority,
    pub(crate) op: &'a Op,
    /// How long ago the wait of the request has ended.
    pub(crate) late: Duration,
}

/// The quotas that measure a call.
struct CallQuotas<'a> {
    counted: CountersInForce<'a>,
    tier: TierIndex,
    class: Priority,
    /// The request's own quota.
    own: Option<Box<TierQuotas>>,
}

impl<'a> CallQuotas<'a> {
    /// # Errors
    ///
    /// If the limit has no such tier.
    #[inline]
    fn choose(call: &StoreCall<'a>) -> Result<Self, LimiterError> {
        let counted = call.limit.read();
        let chosen = counted.limits.choose(call.tier, call.class, call.op)?;
        let own = match chosen.of_all() {
            Chosen::Request(fitted) => counted.limits.of_request(fitted).map(Box::new),
            _ => None,
        };
        Ok(Self {
            counted,
            tier: chosen.index(),
            class: chosen.class(),
            own,
        })
    }

    #[inline]
    fn quotas(&self) -> &TierQuotas {
        match &self.own {
            None => self.counted.limits.quotas(self.tier),
            Some(own) => own,
        }
    }

    /// Whether the operation may have changed the state with this index. All others keep their weights: one that is
    /// ahead of a clock that stepped back would soon seem fresh.
    fn changes(&self, place: usize, op: &Op) -> bool {
        let counters = &self.quotas().counters;
        let width = self.counted.limits.width();
        let is_of_tier = counters.contains(&CounterIndex(place % width));
        match op {
            Op::Reset => true,
            Op::Settle(..) => is_of_tier,
            _ => is_of_tier && place < width,
        }
    }
}

/// A call with its shard and quotas, before the shard is locked.
pub(super) struct PreparedCall<'a> {
    pub(super) call: StoreCall<'a>,
    pub(super) shard: ShardIndex,
    quotas: CallQuotas<'a>,
}

impl<'a> PreparedCall<'a> {
    /// # Errors
    ///
    /// If the limit has no such tier.
    #[inline]
    pub(super) fn new(call: StoreCall<'a>, shard: ShardIndex) -> Result<Self, LimiterError> {
        let quotas = CallQuotas::choose(&call)?;
        Ok(Self {
            call,
            shard,
            quotas,
        })
    }

    /// The units that the call takes. `None` for all other calls, for those with a quota of their own or a class, and if
    /// a block may be in force or start: the states of these are taken out of the table.
    #[inline(always)]
    fn usual_cost(&self, checks_block: bool) -> Option<u64> {
        let (Op::Acquire(cost) | Op::Reserve(cost)) = self.call.op else {
            return None;
        };
        let is_rare = self.quotas.own.is_some() || !self.quotas.class.is_critical();
        let blocks = checks_block || self.quotas.counted.limits.block_for.is_some();
        (!is_rare && !blocks).then_some(*cost)
    }

    /// The entry of the key's one state, and the charge of its one quota. `None` for unusual calls.
    #[inline]
    pub(super) fn in_place(
        &self,
        shard: &StoreShard,
        checks_block: bool,
        time: ClockReading,
    ) -> Option<(EntryIndex, LoneCharge<'_>)> {
        let [name] = &*self.quotas.counted.states else {
            return None;
        };
        let cost = self.usual_cost(checks_block)?;
        let charge = LoneCharge::new(time, self.quotas.quotas(), self.quotas.tier, cost)?;
        Some((shard.find(self.call.key.mixed_with(*name))?, charge))
    }

    /// Charges several quotas, each in the entry of its state. Returns the number of times that their logs had memory for
    /// before, and have memory for now. `None` for unusual calls.
    #[inline]
    pub(super) fn charge_several(
        &self,
        shard: &mut StoreShard,
        checks_block: bool,
        time: ClockReading,
    ) -> Option<(Decision, (usize, usize))> {
        let (counted, quotas) = (&*self.quotas.counted, self.quotas.quotas());
        let cost = self
            .usual_cost(checks_block)
            .filter(|_| quotas.counters.len() > 1)?;
        let mut found = SmallList::<_, FEW_STATES>::filled(quotas.counters.len(), EntryIndex(0));
        let (entries, mut before, mut after) = (found.as_mut_slice(), 0, 0);
        for (counter, entry) in quotas.counters.iter().zip(&mut *entries) {
            *entry = shard.find(self.call.key.mixed_with(counted.states[counter.0]))?;
            before += shard.state(*entry).times_held();
        }
        let by = (quotas, self.quotas.tier);
        let decision = charge_several(time, by, cost, shard, |shard, place| {
            shard.state(entries[place])
        });
        for (counter, entry) in quotas.counters.iter().zip(&*entries) {
            after += self.weigh(shard, counter.0, *entry, time);
        }
        Some((decision, (before, after)))
    }

    /// Weighs the state of an entry that was changed in place. Returns the number of times that its log
    /// has memory for.
    #[inline]
    pub(super) fn weigh(
        &self,
        shard: &mut StoreShard,
        place: usize,
        entry: EntryIndex,
        time: ClockReading,
    ) -> usize {
        let limits = &self.quotas.counted.limits;
        shard.weigh(entry, self.call.limit.number, |state| {
            limits.eviction_weight(place, state, time)
        })
    }

    /// Whether an entry of this tag belongs to this call.
    pub(super) fn owns(&self, tag: u64) -> bool {
        let mut names = self.quotas.counted.states.iter();
        names.any(|name| self.call.key.mixed_with(*name).tag == tag)
    }
}

/// A call with the state of its key.
pub(super) struct MemberOp<'a> {
    pub(super) call: &'a StoreCall<'a>,
    pub(super) shard: ShardIndex,
    quotas: &'a CallQuotas<'a>,
    states: SmallList<State, FEW_STATES>,
    /// The entry of each state; `None` for a state without one.
    entries: SmallList<Option<EntryIndex>, FEW_STATES>,
    block: Block,
    block_entry: Option<EntryIndex>,
    /// The number of times that the logs had memory for before.
    times: usize,
    /// Whether all states have entries.
    has_entries: bool,
    judged: Option<Judgement>,
    /// The verdict of each quota, if several were judged.
    verdicts: Verdicts,
}

/// The entry of a block that has ended, if there is one. It was not searched, since no block is in
/// force. A second entry with its tag must not be made: a search would find the older one, and the new
/// block would be lost.
fn known(shard: &mut StoreShard, name: KeyHash) -> Option<EntryIndex> {
    let entry = shard.find(name)?;
    shard.take(entry);
    Some(entry)
}

/// The costs of making room: the number of live states evicted, and the times in their logs.
#[derive(Debug, Default)]
pub(super) struct Displaced {
    pub(super) live: u64,
    pub(super) times: usize,
}

impl<'a> MemberOp<'a> {
    #[inline]
    pub(super) fn new(prepared: &'a PreparedCall<'a>) -> Self {
        Self {
            call: &prepared.call,
            shard: prepared.shard,
            quotas: &prepared.quotas,
            states: SmallList::new(),
            entries: SmallList::new(),
            block: Block::NONE,
            block_entry: None,
            times: 0,
            has_entries: true,
            judged: None,
            verdicts: Verdicts::EMPTY,
        }
    }

    /// Takes the states out of their shard, and the block if any key may be blocked.
    pub(super) fn take(&mut self, shard: &mut StoreShard, checks_block: bool) {
        let key = self.call.key;
        for name in &*self.quotas.counted.states {
            let entry = shard.find(key.mixed_with(*name));
            let state = entry.map_or(State::FRESH, |entry| shard.take(entry));
            self.times += state.times_held();
            self.has_entries &= entry.is_some();
            self.entries.push(entry);
            self.states.push(state);
        }
        if checks_block {
            self.block_entry = shard.find(self.quotas.counted.block_of(key));
            let block = self.block_entry.map(|entry| shard.take(entry));
            self.block = block.map_or(Block::NONE, |block| Block::from_state(&block));
        }
    }

    /// The operation and its subject.
    #[inline]
    fn applied(&mut self, time: ClockReading) -> (Apply<'a>, Subject<'_>) {
        let apply = Apply {
            time,
            limits: &self.quotas.counted.limits,
            quotas: self.quotas.quotas(),
            tier: self.quotas.tier,
            class: self.quotas.class,
            held: &[],
            op: self.call.op,
        };
        let key = Subject {
            states: self.states.as_mut_slice(),
            block: &mut self.block,
        };
        (apply, key)
    }

    /// Applies the operation.
    pub(super) fn decide(&mut self, time: ClockReading) -> Decision {
        let (apply, mut key) = self.applied(time);
        apply.decide(&mut key)
    }

    /// Judges whether `cost` fits; [`conclude`](Self::conclude) follows.
    pub(super) fn judge(&mut self, cost: u64, time: ClockReading) -> bool {
        let mut verdicts = Verdicts::EMPTY;
        let (apply, mut key) = self.applied(time);
        let judged = apply.judge(&mut key, cost, &mut verdicts);
        self.verdicts = verdicts;
        self.judged.insert(judged).fits()
    }

    /// Ends the operation: `takes` the cost that was judged, or nothing. An operation that was not judged
    /// is applied. Adds the decision of the limit with this identity to `merged`.
    pub(super) fn conclude(
        &mut self,
        takes: bool,
        time: ClockReading,
        limit: u64,
        merged: &mut MergedDecisions,
    ) {
        match self.judged {
            Some(judged) => {
                let verdicts = mem::replace(&mut self.verdicts, Verdicts::EMPTY);
                let (apply, mut key) = self.applied(time);
                apply.conclude(&mut key, (&judged, &verdicts), takes, limit, merged);
            }
            None => merged.add(&self.decide(time), limit),
        }
    }

    /// The most units that could be taken.
    pub(super) fn available(&mut self, time: ClockReading) -> u64 {
        let (apply, mut key) = self.applied(time);
        apply.available(&mut key)
    }

    /// Finds entries for all states that are not fresh. All are pinned until they are
    /// [put](Self::put) back, so that no entry of a call evicts another of the same call.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        shard: &mut StoreShard,
        room: ShardRoom,
        time: ClockReading,
        displaced: &mut Displaced,
    ) {
        if !self.has_entries || self.block != Block::NONE {
            self.make_entries(shard, room, time, displaced);
        }
    }

    #[inline(never)]
    fn make_entries(
        &mut self,
        shard: &mut StoreShard,
        room: ShardRoom,
        time: ClockReading,
        displaced: &mut Displaced,
    ) {
        let now = time.as_nanos();
        let StoreCall { key, limit, .. } = *self.call;
        let newcomer = Newcomer {
            limit: limit.number,
            share: room.share,
        };
        let mut room = |shard: &mut StoreShard, name: KeyHash| {
            // Without memory for entries, the state is dropped as if all others weighed more.
            let made = shard.make(room).ok();
            let inserted = made.and_then(|()| shard.insert(name, newcomer, now));
            let Some((entry, forgotten, times)) = inserted else {
                displaced.live += 1;
                return None;
            };
            displaced.live += u64::from(forgotten != EvictionWeight::FRESH);
            displaced.times += times;
            Some(entry)
        };
        let limits = &self.quotas.counted.limits;
        let states = self
            .states
            .as_slice()
            .iter()
            .zip(self.entries.as_mut_slice());
        for (place, (state, entry)) in states.enumerate() {
            if entry.is_none() && !limits.eviction_weight(place, state, time).is_nothing(now) {
                *entry = room(shard, key.mixed_with(self.quotas.counted.states[place]));
            }
        }
        if self.block_entry.is_none() && self.block != Block::NONE {
            let name = self.quotas.counted.block_of(key);
            self.block_entry = known(shard, name).or_else(|| room(shard, name));
        }
    }

    /// Puts the states back. Returns how many times their logs had memory for before, and how
    /// many they have memory for now.
    pub(super) fn put(&mut self, shard: &mut StoreShard, time: ClockReading) -> (usize, usize) {
        let mut times = 0;
        let (quotas, op) = (self.quotas, self.call.op);
        let limits = &quotas.counted.limits;
        let states = self.states.as_mut_slice().iter_mut();
        for (place, (state, entry)) in states.zip(self.entries.as_slice()).enumerate() {
            if let Some(entry) = *entry {
                let state = mem::take(state);
                let weight = quotas
                    .changes(place, op)
                    .then(|| limits.eviction_weight(place, &state, time));
                times += state.times_held();
                shard.put(entry, self.call.limit.number, state, weight);
            }
        }
        if let Some(entry) = self.block_entry {
            let (state, until) = self.block.to_state();
            let limit = self.call.limit.number;
            shard.put(entry, limit, state, Some(EvictionWeight::of_block(until)));
        }
        (self.times, times)
    }

    /// The instant until which the key is blocked; 0 without a block.
    pub(super) fn blocked_until(&self) -> u64 {
        self.block.to_state().1
    }
}
