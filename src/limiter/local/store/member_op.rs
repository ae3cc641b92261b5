//! One member's operation in a call to a store, with the key's states taken out of the table.

use super::{
    entries::{Newcomer, StoreShard},
    limit::{CountersInForce, StoredLimit},
    small_list::SmallList,
};
use crate::{
    algorithm::{EvictionWeight, State},
    clock::Timestamp,
    decision::{Decision, Op},
    error::LimiterError,
    limiter::{
        Tier,
        block::Block,
        local::hash::KeyHash,
        locked_apply::{Apply, Subject},
        tier_set::Chosen,
    },
};

/// A call to a store: an operation on one key by one limit.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StoreCall<'a> {
    pub(in super::super) limit: &'a StoredLimit,
    pub(in super::super) key: KeyHash,
    pub(in super::super) tier: &'a Tier,
    pub(in super::super) op: &'a Op,
}

impl<'a> StoreCall<'a> {
    /// The quotas in force, and the choice of those that measure the operation.
    ///
    /// # Errors
    ///
    /// If the limit has no such tier.
    #[inline]
    pub(super) fn choose(&self) -> Result<(CountersInForce<'a>, Chosen), LimiterError> {
        let counted = self.limit.read();
        let chosen = counted.limits.choose(self.tier, self.op)?;
        Ok((counted, chosen))
    }
}

/// A call with the state of its key.
pub(super) struct MemberOp<'a> {
    pub(super) call: StoreCall<'a>,
    counted: CountersInForce<'a>,
    chosen: Chosen,
    states: SmallList<State>,
    /// The entry of each state; `None` for a state without one.
    entries: SmallList<Option<usize>>,
    block: Block,
    block_entry: Option<usize>,
    /// The number of times that the logs had memory for before.
    times: usize,
}

/// The entry of a block that has ended, if there is one. It was not searched, since no block is in
/// force. A second entry with its tag must not be made: a search would find the older one, and the new
/// block would be lost.
fn known(shard: &mut StoreShard, name: KeyHash) -> Option<usize> {
    let entry = shard.find(name)?;
    shard.take(entry);
    Some(entry)
}

/// The room of a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardRoom {
    /// The number of entries.
    pub(super) entries: usize,
    /// Each limit's share of them.
    pub(super) share: usize,
}

/// The costs of making room: the number of live states evicted, and the times in their logs.
#[derive(Debug, Default)]
pub(super) struct Displaced {
    pub(super) live: u64,
    pub(super) times: usize,
}

impl<'a> MemberOp<'a> {
    /// The call with the quotas that [`choose`](StoreCall::choose) found.
    #[inline]
    pub(super) fn new(
        call: StoreCall<'a>,
        (counted, chosen): (CountersInForce<'a>, Chosen),
    ) -> Self {
        Self {
            chosen,
            call,
            counted,
            states: SmallList::new(),
            entries: SmallList::new(),
            block: Block::NONE,
            block_entry: None,
            times: 0,
        }
    }

    /// Takes the states out of their shard, and the block if any key may be blocked.
    pub(super) fn take(&mut self, shard: &mut StoreShard, checks_block: bool) {
        let key = self.call.key;
        for name in &*self.counted.states {
            let entry = shard.find(key.mixed_with(*name));
            let state = entry.map_or(State::FRESH, |entry| shard.take(entry));
            self.times += state.times_held();
            self.entries.push(entry);
            self.states.push(state);
        }
        if checks_block {
            self.block_entry = shard.find(self.counted.block_of(key));
            let block = self.block_entry.map(|entry| shard.take(entry));
            self.block = block.map_or(Block::NONE, |block| Block::from_state(&block));
        }
    }

    /// Applies the operation.
    pub(super) fn decide(&mut self, time: Timestamp) -> Decision {
        let op = self.call.op;
        self.decide_as(op, time)
    }

    /// Applies another operation instead of the call's own.
    pub(super) fn decide_as(&mut self, op: &Op, time: Timestamp) -> Decision {
        self.with(time, op, |apply, key| apply.decide(key))
    }

    /// Whether taking `cost` would be allowed.
    pub(super) fn fits(&mut self, cost: u64, time: Timestamp) -> bool {
        let op = self.call.op;
        self.with(time, op, |apply, key| apply.fits(key, cost))
    }

    /// The most units that could be taken.
    pub(super) fn available(&mut self, time: Timestamp) -> u64 {
        let op = self.call.op;
        self.with(time, op, |apply, key| apply.available(key))
    }

    fn with<T>(
        &mut self,
        time: Timestamp,
        op: &Op,
        work: impl FnOnce(&Apply<'_>, &mut Subject<'_>) -> T,
    ) -> T {
        let limits = &self.counted.limits;
        let mut own = None;
        let quotas = limits.measured_by(self.chosen, &mut own);
        let apply = Apply {
            time,
            limits,
            quotas: quotas.expect("they were chosen from these limits"),
            tier: self.chosen.index(),
            op,
        };
        let mut subject = Subject {
            states: self.states.as_mut_slice(),
            block: &mut self.block,
        };
        work(&apply, &mut subject)
    }

    /// Finds entries for all states that are not fresh. All are pinned until they are
    /// [put](Self::put) back, so that no entry of a call evicts another of the same call.
    pub(super) fn make_room(
        &mut self,
        shard: &mut StoreShard,
        ShardRoom { entries, share }: ShardRoom,
        now: u64,
        displaced: &mut Displaced,
    ) {
        let StoreCall { key, limit, .. } = self.call;
        let newcomer = Newcomer {
            limit: limit.number,
            share,
        };
        let mut room = |shard: &mut StoreShard, name: KeyHash| {
            // Without memory for entries, the state is dropped as if all others weighed more.
            let made = shard.make(entries).ok();
            let inserted = made.and_then(|()| shard.insert(name, newcomer, now));
            let Some((entry, forgotten, times)) = inserted else {
                displaced.live += 1;
                return None;
            };
            displaced.live += u64::from(forgotten != Default::default());
            displaced.times += times;
            Some(entry)
        };
        let limits = &self.counted.limits;
        let states = self
            .states
            .as_slice()
            .iter()
            .zip(self.entries.as_mut_slice());
        for (place, (state, entry)) in states.enumerate() {
            if entry.is_none() && !limits.eviction_weight(place, state, now).is_nothing(now) {
                *entry = room(shard, key.mixed_with(self.counted.states[place]));
            }
        }
        if self.block_entry.is_none() && self.block != Block::NONE {
            let name = self.counted.block_of(key);
            self.block_entry = known(shard, name).or_else(|| room(shard, name));
        }
    }

    /// Puts the states back. Returns how many times their logs had memory for before, and how
    /// many they have memory for now.
    pub(super) fn put(&mut self, shard: &mut StoreShard, now: u64) -> (usize, usize) {
        let mut times = 0;
        let limits = &self.counted.limits;
        let states = self.states.as_mut_slice().iter_mut();
        for (place, (state, entry)) in states.zip(self.entries.as_slice()).enumerate() {
            if let Some(entry) = *entry {
                let state = std::mem::take(state);
                let weight = limits.eviction_weight(place, &state, now);
                times += state.times_held();
                shard.put(entry, self.call.limit.number, state, weight);
            }
        }
        if let Some(entry) = self.block_entry {
            let (state, until) = self.block.to_state();
            let limit = self.call.limit.number;
            shard.put(entry, limit, state, EvictionWeight::of_block(until));
        }
        (self.times, times)
    }

    /// The instant until which the key is blocked; 0 without a block.
    pub(super) fn blocked_until(&self) -> u64 {
        self.block.to_state().1
    }

    /// Whether an entry of this tag belongs to this call.
    pub(super) fn owns(&self, tag: u64) -> bool {
        let mut names = self.counted.states.iter();
        names.any(|name| self.call.key.mixed_with(*name).tag == tag)
    }
}
